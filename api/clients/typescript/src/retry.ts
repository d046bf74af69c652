import { XebecError } from "./errors.js";

/** How requests are tried again. */
export interface RetryOptions {
  /** How often a request is sent at most: 3. */
  attempts?: number;
  /** The pause before attempt n+1 is random, up to base·2ⁿ⁻¹ milliseconds (50) and at most cap (2000), after what Retry-After says. */
  base?: number;
  cap?: number;
  /**
   * Tokens for all requests of a client: 10. Each failure takes one, ten successes give one back, and nothing is sent again while half of them or
   * fewer are left. So a gateway that is down gets few requests beyond those of its callers.
   */
  budget?: number;
}

const refill = 0.1;

/** Codes of queries that were not evaluated, or that another replica may answer. */
const repeatable = new Set(["overloaded", "no_replica", "shutting_down", "model_removed", "unavailable", "replica_lost"]);

export class Budget {
  readonly #retry: Required<RetryOptions>;
  #tokens: number;

  constructor(retry: RetryOptions = {}) {
    this.#retry = { attempts: 3, base: 50, cap: 2000, budget: 10, ...retry };
    this.#tokens = this.#retry.budget;
  }

  succeeded(): void {
    this.#tokens = Math.min(this.#tokens + refill, this.#retry.budget);
  }

  /** The milliseconds to wait before a request is sent again, or undefined if it is not. attempt counts from 1. */
  pause(error: XebecError, attempt: number, remaining: number, once: boolean): number | undefined {
    // A browser and fetch do not say whether a request was sent.
    if (!repeatable.has(error.code) && !(error.code === "not_connected" && !once)) return undefined;
    this.#tokens = Math.max(this.#tokens - 1, 0);
    if (this.#tokens <= this.#retry.budget / 2 || attempt >= this.#retry.attempts) return undefined;
    const pause = (error.retryAfter ?? 0) * 1000 + Math.random() * Math.min(this.#retry.cap, this.#retry.base * 2 ** (attempt - 1));
    return pause < remaining ? pause : undefined;
  }
}
