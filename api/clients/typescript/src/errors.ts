/** The codes of this client. All others are the gateway's. */
export type ClientCode = "not_connected" | "stream_broken" | "timeout";

/** A call without an answer. */
export class XebecError extends Error {
  override readonly name = "XebecError";
  /** One of the gateway's codes, such as "overloaded", or a {@link ClientCode}. */
  readonly code: string;
  /** The status of HTTP; 0 if there was no answer, or if the error is that of one query of a batch. */
  readonly status: number;
  /** Names the request in the gateway's log. */
  readonly requestId: string;
  /** Seconds that the gateway asks callers to wait. */
  readonly retryAfter: number | undefined;
  /** The number of a query of a batch. */
  readonly queryId: number | undefined;

  constructor(code: string, message: string, more: { status?: number; requestId?: string; retryAfter?: number | undefined; queryId?: number | undefined; cause?: unknown } = {}) {
    super(`${code}: ${message}${more.requestId ? ` (request ${more.requestId})` : ""}`, { cause: more.cause });
    this.code = code;
    this.status = more.status ?? 0;
    this.requestId = more.requestId ?? "";
    this.retryAfter = more.retryAfter;
    this.queryId = more.queryId;
  }
}

/** The error that an answer other than 2xx says. */
export async function failure(answer: Response): Promise<XebecError> {
  const text = await answer.text();
  const seconds = Number(answer.headers.get("Retry-After") ?? NaN);
  const more = { status: answer.status, requestId: answer.headers.get("X-Request-Id") ?? "", retryAfter: seconds > 0 ? seconds : undefined };
  let said: { code?: unknown; cause?: unknown } = {};
  try {
    said = JSON.parse(text) ?? {};
  } catch {
    // Not the gateway's: that of a proxy before it.
  }
  if (typeof said.code === "string") return new XebecError(said.code, String(said.cause), more);
  const code = { 502: "bad_gateway", 503: "unavailable", 504: "deadline_exceeded" }[answer.status] ?? `http_${answer.status}`;
  return new XebecError(code, `the answer has status ${answer.status} and no error of a gateway: ${text.slice(0, 200)}`, more);
}
