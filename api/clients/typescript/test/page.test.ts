/** The script of the page at /docs, with as much of a document as it uses, against the gateway that XEBEC_SERVER names. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

const server = `http://${process.env["XEBEC_SERVER"]}`;

class Element {
  hidden = false;
  disabled = false;
  value = "";
  href = "";
  className = "";
  children: (Element | string)[] = [];
  #text = "";
  #listeners = new Map<string, () => unknown>();
  constructor(readonly tag: string) {}
  get textContent(): string {
    return this.#text + this.children.map((c) => (typeof c === "string" ? c : c.textContent)).join(" ");
  }
  set textContent(text: string) {
    this.#text = text;
    this.children = [];
  }
  append(...children: (Element | string)[]): void {
    this.children.push(...children);
  }
  replaceChildren(...children: (Element | string)[]): void {
    this.#text = "";
    this.children = children;
  }
  setAttribute(): void {}
  addEventListener(event: string, listener: () => unknown): void {
    this.#listeners.set(event, listener);
  }
  async fire(event: string): Promise<void> {
    await this.#listeners.get(event)!();
  }
  find(tag: string): Element {
    const found = this.all().find((e) => e.tag === tag);
    assert.ok(found, `no ${tag} in ${this.textContent}`);
    return found;
  }
  all(): Element[] {
    return this.children.flatMap((c) => (typeof c === "string" ? [] : [c, ...c.all()]));
  }
}

test("the page lists functions and calls them", async () => {
  const answer = await fetch(`${server}/docs`);
  const html = await answer.text();
  assert.match(answer.headers.get("Content-Security-Policy")!, /default-src 'none'.*frame-ancestors 'none'/);
  const script = /<script>(.*)<\/script>/s.exec(html)![1]!;

  const ids = new Map([...html.matchAll(/<(\w+) id="(\w+)"/g)].map((m) => [m[2]!, new Element(m[1]!)]));
  const requests: Promise<unknown>[] = [];
  const quiet = async () => {
    for (let n = -1; n !== requests.length; ) {
      n = requests.length;
      await Promise.allSettled(requests);
      await new Promise(setImmediate); // what waits for the answers goes on
    }
  };
  runInNewContext(script, {
    document: { getElementById: (id: string) => ids.get(id), createElement: (tag: string) => new Element(tag) },
    location: { hash: "#pair", origin: server },
    addEventListener: () => undefined,
    fetch: (path: string, options?: RequestInit) => {
      const request = fetch(server + path, options).then(async (a) => ({ ok: a.ok, status: a.status, text: ((text) => async () => text)(await a.text()) }));
      requests.push(request);
      return request;
    },
  });
  await quiet();

  const names = ids.get("functions")!.all().filter((e) => e.tag === "a").map((e) => e.textContent);
  assert.ok(names.includes("echo") && names.includes("pair"), names.join());
  const shown = ids.get("function")!;
  assert.match(shown.textContent, /number: int64\[\], text: string\[\]/);
  const routes = ids.get("routes")!.textContent;
  assert.ok(routes.includes("/{function}/predict") && !routes.includes("/v1/apply"), routes);

  const [form, button] = [shown.find("textarea"), shown.find("button")];
  assert.equal(form.value, '{"input":{"number":0,"text":"text"}}');
  const results = shown.children.filter((e): e is Element => typeof e !== "string" && e.tag === "pre");
  await button.fire("click");
  assert.match(results[0]!.textContent, /"models":/);
  form.value = "{";
  await form.fire("input");
  assert.match(results[1]!.textContent, /^curl -s .*-d '\{'$/);
  await button.fire("click");
  assert.equal(results[0]!.className, "bad");
  assert.match(results[0]!.textContent, /^400: /);
});
