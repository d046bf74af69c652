// Writes src/schema.ts, the types of the function port, from api/spec/openapi.yaml. With --check it only says whether the file is up to date.
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";
import { parse } from "yaml";

const output = new URL("src/schema.ts", import.meta.url);
const api = parse(readFileSync(new URL("../../spec/openapi.yaml", import.meta.url), "utf8"));

// Apps call functions. The rest of the description is thousands of lines of types.
const paths = {};
for (const [path, item] of Object.entries(api.paths)) {
  if (Object.values(item).some((operation) => operation.tags?.includes("functions"))) paths[path] = item;
}
const components = {};
function keep(value) {
  if (typeof value !== "object" || value === null) return;
  const reference = /^#\/components\/(\w+)\/(\w+)$/.exec(value.$ref ?? "");
  if (reference) {
    const [, kind, name] = reference;
    components[kind] ??= {};
    if (!(name in components[kind])) {
      components[kind][name] = api.components[kind][name];
      keep(api.components[kind][name]);
    }
  }
  Object.values(value).forEach(keep);
}
keep(paths);

const types = astToString(await openapiTS({ ...api, paths, components }, { alphabetize: true }));
const text = `// Generated from api/spec/openapi.yaml by \`npm run generate\`. Do not edit.\n\n${types}`;
if (!process.argv.includes("--check")) writeFileSync(output, text);
else if (readFileSync(output, "utf8") !== text) {
  console.error("error: src/schema.ts is not what api/spec/openapi.yaml says: run `npm run generate` in api/clients/typescript");
  process.exit(1);
}
