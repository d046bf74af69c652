import { XebecError } from "./errors.js";
import { decode } from "./json.js";

/** The outputs of a stream, as they come. Leaving the loop early ends the stream; one that breaks off throws. */
export class OutputStream<O> implements AsyncIterable<O> {
  /** Names the query for feedback, which is about the first output. Known from the beginning, unless the answer is the function's default. */
  queryId: number;
  /** The only output is the function's default. Known with the first output. */
  default = false;
  readonly #answer: Response;

  constructor(answer: Response) {
    this.#answer = answer;
    this.queryId = Number(answer.headers.get("Xebec-Query-Id") ?? 0);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<O, void, undefined> {
    if (!this.#answer.headers.get("Content-Type")?.startsWith("application/jsonl")) {
      const said = decode(await this.#answer.text()) as { output: O; query_id: number; default: boolean };
      this.queryId = said.query_id;
      this.default = said.default;
      yield said.output;
      return;
    }
    for await (const line of lines(this.#answer.body!)) {
      const said = decode(line) as { output?: O; end?: true; code?: string; cause?: string; request_id?: string };
      if (said.code !== undefined) throw new XebecError(said.code, said.cause ?? "", { requestId: said.request_id ?? "" });
      if (said.end) return;
      yield said.output as O;
    }
    throw new XebecError("stream_broken", "the stream stopped before its end");
  }

  /** Ends the stream, if it is not read to its end. */
  async cancel(): Promise<void> {
    await this.#answer.body?.cancel();
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (cause) {
        throw new XebecError("stream_broken", "the stream stopped before its end", { cause });
      }
      if (part.done) return;
      const pieces = decoder.decode(part.value, { stream: true }).split("\n");
      pieces[0] = rest + pieces[0];
      rest = pieces.pop() ?? "";
      yield* pieces;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it may have failed already
  }
}

