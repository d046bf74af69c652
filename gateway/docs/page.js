"use strict";
const routes = /*ROUTES*/[];
const $ = (id) => document.getElementById(id);

// element makes an element. Text becomes text, never markup.
function element(tag, text, ...children) {
  const e = document.createElement(tag);
  if (text) e.textContent = text;
  e.append(...children);
  return e;
}

async function ask(path, options) {
  const answer = await fetch(path, options);
  const text = await answer.text();
  let value;
  try { value = JSON.parse(text); } catch { value = text; }
  if (!answer.ok) {
    const why = value.cause || (value.error && value.error.message) || value.error || text;
    throw Object.assign(new Error(answer.status + ": " + (typeof why === "string" ? why : JSON.stringify(why))), { status: answer.status, value });
  }
  return value;
}

function rows(pairs) {
  const body = element("tbody");
  for (const [name, value] of pairs) body.append(element("tr", "", element("th", name), element("td", value)));
  return element("table", "", body);
}

const tensors = (list) => list.map((t) => `${t.name}: ${t.dtype}${JSON.stringify(t.shape)}${t.media ? " " + t.media : ""}`).join(", ");

async function show(name) {
  const at = $("function");
  at.hidden = false;
  at.replaceChildren(element("h3", name));
  let f;
  try {
    f = await ask("/" + encodeURIComponent(name));
  } catch (e) {
    const p = element("p", e.message);
    p.className = "bad";
    at.append(p);
    return;
  }
  at.append(rows([
    ["inputs", tensors(f.inputs)], ["outputs", tensors(f.outputs)], ["models", f.models.join(", ")], ["latency objective", f.slo_ms + " ms"],
    ["default", "default" in f ? JSON.stringify(f.default) : "none"], ["streams", f.streams ? "yes" : "no"],
  ]));
  const body = element("textarea");
  body.spellcheck = false;
  body.setAttribute("aria-label", "request");
  body.value = f.example ? JSON.stringify(f.example) : '{"input": …}';
  const button = element("button", "POST /" + name + "/predict"), answer = element("pre"), command = element("pre");
  answer.hidden = true;
  const showCommand = () => {
    const quoted = "'" + body.value.replaceAll("'", "'\\''") + "'";
    command.textContent = `curl -s ${location.origin}/${name}/predict -H 'Content-Type: application/json' -d ${quoted}`;
  };
  body.addEventListener("input", showCommand);
  showCommand();
  button.addEventListener("click", async () => {
    button.disabled = true;
    answer.hidden = false;
    answer.className = "";
    try {
      answer.textContent = JSON.stringify(await ask(`/${encodeURIComponent(name)}/predict`, { method: "POST", headers: { "Content-Type": "application/json" }, body: body.value }), null, 1);
    } catch (e) {
      answer.textContent = e.message;
      answer.className = "bad";
    }
    button.disabled = false;
  });
  at.append(element("h3", "Request"), body, button, answer, command);
  for (const part of ["input", "output"]) {
    const schema = element("details", "", element("summary", "JSON Schema of the " + part));
    schema.append(element("pre", JSON.stringify(f[part], null, 1)));
    at.append(schema);
  }
}

function list(names, use) {
  for (const name of names) {
    const option = element("option");
    option.value = name;
    $("names").append(option);
    const link = element("a", name);
    link.href = "#" + name;
    $("functions").append(element("li", "", link));
  }
  const open = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    if (name) use(name);
  };
  addEventListener("hashchange", open);
  $("show").addEventListener("click", () => {
    if (location.hash.slice(1) === $("name").value) open();
    else location.hash = $("name").value;
  });
  open();
}

// On the admin port, functions are described by their declarations, and cannot be called.
async function listDeclared() {
  const { functions } = await ask("/v1/functions");
  $("note").textContent = "This is the admin port. /docs of the function port has forms to call functions.";
  list(functions.map((f) => f.spec.name), (name) => {
    const found = functions.find((f) => f.spec.name === name);
    $("function").hidden = false;
    $("function").replaceChildren(element("h3", name), element("pre", found ? JSON.stringify(found.spec, null, 1) : "no such function"));
  });
}

async function begin() {
  let admin = false;
  try {
    const found = await ask("/docs/functions");
    if (found.total > found.functions.length) $("note").textContent = `${found.functions.length} of ${found.total} functions are listed; any can be shown by its name.`;
    if (found.total === 0) $("note").textContent = "There is no function yet: xebec deploy DIR declares one.";
    list(found.functions, show);
  } catch (e) {
    if (e.status !== 404) throw e;
    admin = true;
  }
  for (const r of routes) {
    if (admin ? r.admin : r.functions) $("routes").append(element("tr", "", element("td", r.method), element("td", r.path), element("td", r.summary)));
  }
  if (admin) await listDeclared();
}

begin().catch((e) => {
  $("note").textContent = e.status === 401 ? "This port wants a token, which a page does not have: see /docs of the function port, or `xebec get functions`." : e.message;
  $("note").className = "bad";
});
