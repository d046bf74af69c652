/**
 * Calls functions of a Xebec gateway, from Node.js 20 or newer, and from browsers.
 *
 * The types of requests and answers are generated from the description of the API (schema.ts). Where to read next: retry.ts says what is sent again,
 * stream.ts reads streams, json.ts has the form of bytes and arrays.
 */
import { XebecError, failure } from "./errors.js";
import { decode, encode, toArray, type TypedArray } from "./json.js";
import { Budget, type RetryOptions } from "./retry.js";
import type { components } from "./schema.js";
import { OutputStream } from "./stream.js";

export { XebecError, OutputStream };
export type { RetryOptions, TypedArray, components };
export type { ClientCode } from "./errors.js";

type Schemas = components["schemas"];
/** What a function takes and answers. */
export type Description = Schemas["CallDescription"];
/** What became of a feedback. */
export type FeedbackResult = Schemas["FeedbackResult"];
/** The answer to one query. */
export type Prediction<O = unknown> = Omit<Schemas["Prediction"], "output"> & { output: O };

export interface ClientOptions {
  /** The address of the function port. Without it, the environment variable XEBEC_SERVER, or else http://127.0.0.1:1337. */
  url?: string;
  /** How long a call may take with all its attempts, in milliseconds: 30000. A stream may take longer, once it has begun. */
  timeoutMs?: number;
  retry?: RetryOptions;
  /** Header fields of each request, for example a proxy's token. */
  headers?: Record<string, string>;
}

/** What a call may say beside its input. */
export interface CallOptions {
  /** The latency objective of this call. It bounds further attempts too: each has what is left of it. */
  sloMs?: number;
  /** The user or session that the query is for. */
  context?: string;
  models?: string[];
  version?: string;
  minConfidence?: number;
  parameters?: Record<string, unknown>;
  salt?: string | number;
  ttlMs?: number;
  /** Ends the call. */
  signal?: AbortSignal;
}

/** How good an answer was. */
export type Verdict = ({ label: unknown } | { correct: boolean } | { loss: number }) & { context?: string };

interface Sent {
  path: string;
  body?: string | Uint8Array;
  headers?: Record<string, string>;
  /** It counts each time that it is received. */
  once?: boolean;
}

export class Client {
  readonly #url: string;
  readonly #timeoutMs: number;
  readonly #headers: Record<string, string>;
  readonly #budget: Budget;
  readonly #described = new Map<string, Promise<Description>>();

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env["XEBEC_SERVER"] ?? "127.0.0.1:1337";
    this.#url = (url.includes("://") ? url : `http://${url}`).replace(/\/+$/, "");
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#headers = options.headers ?? {};
    this.#budget = new Budget(options.retry);
  }

  /** The names of the gateway's functions, at most 1,000. */
  async functions(): Promise<string[]> {
    return (await this.#json<Schemas["FunctionNames"]>({ path: "/docs/functions" })).functions;
  }

  /** What a function takes and answers. */
  async describe(name: string): Promise<Description> {
    return this.#json<Description>({ path: path(name) });
  }

  /**
   * Asks for one prediction. The input is a number, a string, a Uint8Array for bytes, or nested arrays or objects of these. In the output, bytes are
   * Uint8Arrays. JSON's numbers lose digits beyond 2⁵³: `predictArray` does not.
   */
  async predict<O = unknown>(name: string, input: unknown, options: CallOptions = {}): Promise<Prediction<O>> {
    return this.#json({ path: path(name, "/predict"), body: encode({ input, ...members(options) }), headers: headers(options) }, options);
  }

  /**
   * Sends a typed array as the only input, in row-major order, and gets the only output as one, both as bytes. Its type must be the input's. Of the
   * options, those that need JSON cannot be said.
   */
  async predictArray(name: string, input: TypedArray, options: Pick<CallOptions, "sloMs" | "context" | "signal"> = {}): Promise<Prediction<TypedArray>> {
    const { outputs } = await this.#describe(name);
    const body = new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    const fields = { ...headers(options), "Content-Type": "application/octet-stream", Accept: "application/octet-stream" };
    let answer: { headers: Headers; body: ArrayBuffer };
    try {
      const read = async (a: Response) => ({ headers: a.headers, body: await a.arrayBuffer() });
      answer = await this.#send({ path: path(name, "/predict"), body, headers: fields }, options, read);
    } catch (error) {
      this.#described.delete(name); // it may have another signature now
      throw error;
    }
    const said = (field: string) => answer.headers.get(`Xebec-${field}`);
    const list = (field: string) => said(field)?.split(",").filter(Boolean) ?? [];
    const explanation = said("Default-Explanation");
    return {
      output: toArray(answer.body, outputs[0]?.dtype ?? "bytes"), query_id: Number(said("Query-Id")), default: said("Default") === "true",
      ...(explanation ? { default_explanation: explanation } : {}), confidence: Number(said("Confidence") ?? 1), models: list("Models"),
      late: list("Late"), failed: list("Failed"), dropped: list("Dropped"),
    };
  }

  /** Asks for one prediction for each input, in one request. Queries that failed beside others that did not have an error in the list. */
  async predictBatch<O = unknown>(name: string, inputs: unknown[], options: CallOptions = {}): Promise<(Prediction<O> | XebecError)[]> {
    const sent = { path: path(name, "/predict"), body: encode({ input_batch: inputs, ...members(options) }), headers: headers(options) };
    type Failed = Schemas["NativeError"] & { query_id?: number };
    const { batch_predictions } = await this.#json<{ batch_predictions: (Prediction<O> | Failed)[] }>(sent, options);
    return batch_predictions.map((p) => ("error" in p ? new XebecError(p.code, p.cause, { queryId: p.query_id }) : p));
  }

  /** Asks a model that answers in a stream. `sloMs` is for the first output. */
  async stream<O = unknown>(name: string, input: unknown, options: CallOptions = {}): Promise<OutputStream<O>> {
    const fields = { ...headers(options), Accept: "application/jsonl" };
    const sent = { path: path(name, "/predict"), body: encode({ input, ...members(options) }), headers: fields };
    return this.#send(sent, options, async (answer) => new OutputStream<O>(answer));
  }

  /** Says how good an answer was: that of a prediction, of a query's number, or to an input. */
  async feedback(name: string, of: { query_id: number } | number | { input: unknown }, verdict: Verdict): Promise<FeedbackResult> {
    const about = typeof of === "number" ? { query_id: of } : "query_id" in of ? { query_id: of.query_id } : { input: of.input };
    return this.#json({ path: path(name, "/feedback"), body: encode({ ...about, ...verdict }), headers: json, once: !("query_id" in about) });
  }

  /** Sends several feedbacks, each as the HTTP API has it: `{query_id: 42, label: 7}`. */
  async feedbackBatch(name: string, items: Schemas["Feedback"][]): Promise<FeedbackResult[]> {
    const once = items.some((item) => item.query_id === undefined);
    const sent = { path: path(name, "/feedback"), body: encode({ feedback_batch: items }), headers: json, once };
    return (await this.#json<Schemas["FeedbackResults"]>(sent)).feedback_results;
  }

  /** Descriptions are kept: they change only when the function does. */
  #describe(name: string): Promise<Description> {
    const known = this.#described.get(name) ?? this.describe(name);
    this.#described.set(name, known);
    known.catch(() => this.#described.delete(name));
    return known;
  }

  #json<T>(sent: Sent, options: Pick<CallOptions, "sloMs" | "signal"> = {}): Promise<T> {
    return this.#send(sent, options, async (answer) => decode(await answer.text()) as T);
  }

  /** Sends a request, again if that can help, and reads an answer with status 2xx. */
  async #send<T>(sent: Sent, options: Pick<CallOptions, "sloMs" | "signal">, read: (answer: Response) => Promise<T>): Promise<T> {
    if (options.sloMs !== undefined && !(options.sloMs > 0)) throw new RangeError(`sloMs: ${options.sloMs}: expected milliseconds above 0`);
    const end = performance.now() + Math.min(this.#timeoutMs, options.sloMs ?? Infinity);
    for (let attempt = 1; ; attempt++) {
      const remaining = end - performance.now();
      let error;
      const timeout = new AbortController();
      const timer = setTimeout(() => timeout.abort(new XebecError("timeout", `no answer within ${this.#timeoutMs} ms`)), this.#timeoutMs);
      try {
        const answer = await fetch(this.#url + sent.path, this.#request(sent, options, remaining, timeout.signal));
        if (answer.ok) {
          const value = await read(answer);
          this.#budget.succeeded();
          return value;
        }
        error = await failure(answer);
      } catch (cause) {
        options.signal?.throwIfAborted();
        if (cause instanceof XebecError) throw cause;
        error = new XebecError("not_connected", `no answer of ${this.#url}: ${describeCause(cause)}`, { cause });
      } finally {
        clearTimeout(timer);
      }
      const pause = this.#budget.pause(error, attempt, end - performance.now(), sent.once ?? false);
      if (pause === undefined) throw error;
      await sleep(pause, options.signal);
    }
  }

  #request(sent: Sent, options: Pick<CallOptions, "sloMs" | "signal">, remaining: number, timeout: AbortSignal): RequestInit {
    const slo = options.sloMs === undefined ? {} : { "Xebec-Slo-Ms": Math.max(remaining, 0.001).toFixed(3) };
    return {
      method: sent.body === undefined ? "GET" : "POST",
      ...(sent.body === undefined ? {} : { body: sent.body as BodyInit }),
      headers: { ...this.#headers, ...sent.headers, ...slo },
      signal: options.signal ? AbortSignal.any([options.signal, timeout]) : timeout,
    };
  }
}

const json = { "Content-Type": "application/json", Accept: "application/json" };

function headers(options: CallOptions): Record<string, string> {
  return options.context === undefined ? json : { ...json, "Xebec-Context": options.context };
}

/** The options that stand in the body. */
function members(o: CallOptions): Partial<Schemas["PredictRequest"]> {
  const all = { models: o.models, version: o.version, min_confidence: o.minConfidence, parameters: o.parameters, salt: o.salt, ttl_ms: o.ttlMs };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

function path(name: string, action = ""): string {
  if (!/^[a-z0-9-]+$/.test(name)) throw new RangeError(`function ${JSON.stringify(name)}: expected lower-case letters, digits and dashes`);
  return `/${name}${action}`;
}

function describeCause(error: unknown): string {
  const { message, cause } = error as { message?: string; cause?: { message?: string } };
  return cause?.message || message || String(error);
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const ended = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", ended);
      resolve();
    }, ms);
    signal?.addEventListener("abort", ended, { once: true });
  });
}
