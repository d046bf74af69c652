import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, XebecError } from "../src/index.js";
import { Budget } from "../src/retry.js";
import { failed, seven, withFake } from "./fake.js";

const quick = { base: 1, cap: 1 };

function code(expected: string) {
  return (error: unknown) => error instanceof XebecError && error.code === expected;
}

test("what was not evaluated is sent again", async () => {
  await withFake([failed(503, "overloaded"), { status: 0, body: undefined, cut: true }, seven], async (fake) => {
    const client = new Client({ url: fake.url, retry: quick, headers: { "X-Tenant": "a" } });
    assert.equal((await client.predict("f", 1)).output, 7);
    assert.equal(fake.asked.length, 3);
    assert.equal(fake.asked[2]!.headers["x-tenant"], "a");
    assert.equal(fake.asked[2]!.body, '{"input":1}');
  });
});

test("other errors are not", async () => {
  for (const [status, name] of [[400, "invalid_argument"], [404, "not_found"], [502, "model_error"], [503, "low_confidence"], [504, "deadline_exceeded"]] as const) {
    await withFake([failed(status, name)], async (fake) => {
      await assert.rejects(new Client({ url: fake.url }).predict("f", 1), (e: XebecError) => {
        assert.deepEqual([e.code, e.status, e.requestId === "" , e.message.startsWith(`${name}: why`)], [name, status, true, true]);
        return true;
      });
      assert.equal(fake.asked.length, 1);
    });
  }
});

test("feedback by input is not sent twice", async () => {
  const cut = { status: 0, body: undefined, cut: true };
  const counted = { status: 200, body: { status: "counted" } };
  await withFake([cut, counted], async (fake) => {
    const client = new Client({ url: fake.url, retry: quick });
    await assert.rejects(client.feedback("f", { input: 1 }, { label: 2 }), code("not_connected"));
    assert.equal(fake.asked.length, 1);
  });
  await withFake([cut, counted], async (fake) => {
    const client = new Client({ url: fake.url, retry: quick });
    assert.equal((await client.feedback("f", 42, { label: 0 })).status, "counted");
    assert.equal(fake.asked[1]!.body, '{"query_id":42,"label":0}');
  });
});

test("the budget ends retries", async () => {
  await withFake([failed(503, "overloaded")], async (fake) => {
    const client = new Client({ url: fake.url, retry: quick });
    for (let i = 0; i < 50; i++) await assert.rejects(client.predict("f", 1), code("overloaded"));
    assert.ok(fake.asked.length > 50 && fake.asked.length < 60, `${fake.asked.length} requests`);
    fake.answers = [seven];
    for (let i = 0; i < 100; i++) await client.predict("f", 1);
    fake.answers = [failed(503, "overloaded"), seven];
    await client.predict("f", 1);
  });
});

test("pauses keep to Retry-After and to what is left", () => {
  const busy = new XebecError("overloaded", "why", { retryAfter: 2 });
  const pause = new Budget().pause(busy, 1, 10_000, true)!;
  assert.ok(pause >= 2000 && pause <= 2050, `${pause}`);
  assert.equal(new Budget().pause(busy, 1, 2000, true), undefined);
  assert.equal(new Budget().pause(busy, 3, 10_000, true), undefined);
});

test("each attempt has what is left of the objective", async () => {
  await withFake([failed(503, "overloaded"), seven], async (fake) => {
    await new Client({ url: fake.url, retry: quick }).predict("f", 1, { sloMs: 20_000 });
    const [first, second] = fake.asked.map((r) => Number(r.headers["xebec-slo-ms"]));
    assert.ok(first! <= 20_000 && second! < first! && second! > 0);
  });
  for (const sloMs of [0, -1, NaN]) await assert.rejects(new Client().predict("f", 1, { sloMs }), RangeError);
});

test("a call ends with its signal", async () => {
  await withFake([failed(503, "overloaded", { "Retry-After": "20" })], async (fake) => {
    const client = new Client({ url: fake.url });
    const controller = new AbortController();
    const call = client.predict("f", 1, { signal: controller.signal });
    controller.abort(new Error("left"));
    await assert.rejects(call, /left/);
    await assert.rejects(client.predict("f", 1, { signal: AbortSignal.abort(new Error("gone")) }), /gone/);
  });
});

test("an answer of a proxy, and no gateway", async () => {
  let url = "";
  await withFake([{ status: 502, body: "<html>" }], async (fake) => {
    url = fake.url;
    await assert.rejects(new Client({ url }).predict("f", 1), code("bad_gateway"));
  });
  await assert.rejects(new Client({ url, retry: quick }).predict("f", 1), code("not_connected"));
});

test("streams that break off throw", async () => {
  const headers = { "Content-Type": "application/jsonl", "Xebec-Query-Id": "5" };
  const line = '{"output":"w0"}\n';
  const error = '{"error":"x","cause":"why","code":"model_error"}\n';
  for (const [answer, expected] of [
    [{ status: 200, headers, body: line }, "stream_broken"], [{ status: 200, headers, body: line, cut: true }, "stream_broken"],
    [{ status: 200, headers, body: line + error }, "model_error"],
  ] as const) {
    await withFake([answer], async (fake) => {
      const stream = await new Client({ url: fake.url }).stream("f", "1");
      assert.equal(stream.queryId, 5);
      const outputs: unknown[] = [];
      await assert.rejects(async () => {
        for await (const output of stream) outputs.push(output);
      }, code(expected));
      assert.deepEqual(outputs, ["w0"]);
    });
  }
});

test("names", async () => {
  for (const name of ["", "a/b", "..", "a b", "a?b", "A"]) await assert.rejects(new Client().predict(name, 1), RangeError);
});
