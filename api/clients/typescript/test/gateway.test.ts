/** Against a gateway with api/clients/testdata, whose address is in XEBEC_SERVER. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Client, XebecError } from "../src/index.js";

assert.ok(process.env["XEBEC_SERVER"], "XEBEC_SERVER names no gateway: run .ci/clients.sh");
const client = new Client();

function code(expected: string) {
  return (error: unknown) => error instanceof XebecError && error.code === expected;
}

test("describe", async () => {
  const names = await client.functions();
  assert.ok(names.includes("echo") && names.includes("words"));
  const pair = await client.describe("pair");
  assert.deepEqual(pair.inputs.map((t) => t.name), ["number", "text"]);
  assert.deepEqual((await client.predict("pair", pair.example!["input"])).output, { number: 0, text: "" });
});

test("values", async () => {
  const p = await client.predict<number[]>("echo", [1.5, 2]);
  assert.deepEqual([p.output, p.models, p.default], [[1.5, 2], ["echo@1"], false]);
  assert.ok(p.query_id > 0 && Number.isSafeInteger(p.query_id));
  assert.deepEqual((await client.predict("markers", new Uint8Array([0, 255]))).output, new Uint8Array([0, 255]));
  assert.deepEqual((await client.predict("echo", new Float32Array([1, 2]))).output, [1, 2]);
  assert.deepEqual((await client.predict("echo", [NaN])).output, [null]);
  await assert.rejects(client.predict("echo", [Infinity]), RangeError);
  const large = new Uint8Array(100_000).fill(7);
  assert.deepEqual((await client.predict("markers", large)).output, large);
});

test("arrays", async () => {
  const image = Float32Array.from({ length: 64 * 64 }, (_, i) => i / 3);
  const p = await client.predictArray("square", image, { sloMs: 30_000 });
  assert.deepEqual(p.output, image);
  assert.deepEqual([p.models, p.default, p.confidence], [["square@1"], false, 1]);
  assert.deepEqual((await client.predictArray("square", image.subarray(0))).output, image);
  await assert.rejects(client.predictArray("square", image.subarray(1)), code("invalid_argument"));
});

test("batches", async () => {
  assert.deepEqual((await client.predictBatch("echo", [[1], [2, 3]])).map((p) => (p as { output: unknown }).output), [[1], [2, 3]]);
  const [good, bad] = await client.predictBatch("markers", ["ok", "refuse:too dark"]);
  assert.ok(!(good instanceof XebecError) && bad instanceof XebecError && bad.code === "invalid_input" && bad.message.includes("too dark"));
  assert.equal(bad.queryId, good!.query_id + 1);
});

test("what a call may say", async () => {
  const text = async (input: string, options: object) => new TextDecoder().decode((await client.predict<Uint8Array>("markers", input, options)).output);
  assert.equal(await text("context", { context: "user-17" }), "user-17");
  assert.equal(await text("parameters", { parameters: { top_k: 3 } }), '{"top_k":3}');
  assert.deepEqual((await client.predict("learning", [1], { models: ["echo@1"] })).models, ["echo@1"]);
});

test("errors and defaults", async () => {
  await assert.rejects(client.predict("markers", "error"), (e: XebecError) => e.code === "model_error" && e.status === 502 && e.requestId !== "");
  await assert.rejects(client.predict("missing", 1), code("not_found"));
  const p = await client.predict<Uint8Array>("guarded", "error");
  assert.ok(p.default && p.default_explanation && new TextDecoder().decode(p.output) === "default");
});

test("streams", async () => {
  const stream = await client.stream<string>("words", "count:3");
  assert.ok(stream.queryId > 0);
  const outputs = [];
  for await (const output of stream) outputs.push(output);
  assert.deepEqual(outputs, ["0", "1", "2"]);
  for await (const output of await client.stream<string>("words", "forever:1000")) {
    assert.equal(output.length, 1000);
    break; // ends the stream
  }
  await (await client.stream("words", "forever:1000")).cancel();
  await assert.rejects(client.stream("missing", "x"), code("not_found"));
  for await (const output of await client.stream("echo", [1])) assert.deepEqual(output, [1]); // of a model that answers at once
});

test("feedback", async () => {
  const p = await client.predict("learning", [5]);
  assert.equal((await client.feedback("learning", p, { label: [5] })).status, "counted");
  assert.equal((await client.feedback("learning", p.query_id, { correct: true })).status, "duplicate");
  await assert.rejects(client.feedback("learning", 12345, { loss: 0.5 }), code("not_found"));
  const [a] = await client.predictBatch("learning", [[1]]);
  assert.ok(a && !(a instanceof XebecError));
  assert.equal((await client.feedbackBatch("learning", [{ query_id: a.query_id, loss: 0.25 }]))[0]!.status, "counted");
});

test("the program of the guide's page prints what the page says", async () => {
  const page = await readFile(new URL("../../../../../deploy/guide/typescript-client.md", import.meta.url), "utf8");
  const program = /^```ts\n(.*?)^```\n/ms.exec(page)![1]!;
  const printed = [...program.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map((m) => m[1]);
  assert.ok(printed.length > 4);
  // It lies inside the package, where its name resolves, and is compiled with the package's settings.
  const root = new URL("../..", import.meta.url).pathname;
  const dir = await mkdtemp(join(root, "dist/page-"));
  try {
    await writeFile(join(dir, "page.ts"), program);
    const settings = { extends: "../../tsconfig.json", compilerOptions: { rootDir: ".", outDir: ".", declaration: false }, include: ["page.ts"], exclude: [] };
    await writeFile(join(dir, "tsconfig.json"), JSON.stringify(settings));
    const run = promisify(execFile);
    await run(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", dir]).catch((e) => assert.fail(e.stdout));
    const { stdout } = await run(process.execPath, [join(dir, "page.js")]);
    assert.deepEqual(stdout.trimEnd().split("\n"), printed);
  } finally {
    await rm(dir, { recursive: true });
  }
});
