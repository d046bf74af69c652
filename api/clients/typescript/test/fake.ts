/** A server whose answers the tests choose. */
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

export interface Answer {
  status: number;
  body: unknown;
  headers?: Record<string, string>;
  /** The connection is closed after the body, or instead of an answer if there is none. */
  cut?: boolean;
}

export interface Fake {
  url: string;
  answers: Answer[];
  asked: { path: string; headers: IncomingHttpHeaders; body: string }[];
}

/** Runs a test against a server that gives the answers one after the other; the last one stays. */
export async function withFake(answers: Answer[], test: (fake: Fake) => Promise<void>): Promise<void> {
  const fake: Fake = { url: "", answers, asked: [] };
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    fake.asked.push({ path: request.url ?? "", headers: request.headers, body });
    const answer = fake.answers.length > 1 ? fake.answers.shift()! : fake.answers[0]!;
    if (answer.cut && answer.body === undefined) {
      request.socket.destroy();
      return;
    }
    const text = typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body);
    response.writeHead(answer.status, { "Content-Type": "application/json", ...answer.headers });
    response.write(text, () => (answer.cut ? request.socket.destroy() : response.end()));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  fake.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await test(fake);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

export const seven: Answer = { status: 200, body: { query_id: 1, output: 7, default: false, confidence: 1, models: ["m@1"] } };

export function failed(status: number, code: string, headers: Record<string, string> = {}): Answer {
  return { status, headers, body: { error: "Query processing error", cause: "why", code, request_id: "r1" } };
}
