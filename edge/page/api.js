// Requests to whichever edge answers: the cookie goes with each, the CSRF token with each that changes something.
// Every request may be repeated (a message by its key), so one that is lost at an edge goes to the next.

const TIMEOUT_MS = 20_000;
const HINTS = {
  401: "Sign in again to go on.",
  404: "It may have been deleted.",
  413: "Send a shorter message.",
};

/** An edge's refusal. `retryAfterS` is null when the edge names no time. */
export class Refusal extends Error {
  constructor(status, { message, code }, retryAfterS = null) {
    super(message);
    Object.assign(this, { status, code, retryAfterS });
  }

  get mayPass() {
    return this.status === 503 || this.status === 502 || this.status === 504;
  }
}

/** No edge answered. */
export class Unreachable extends Error {}

/** What went wrong and what to do, as a sentence for the reader. */
export function explain(error) {
  if (error instanceof Unreachable) return "No server can be reached. Check your connection, then try again.";
  if (!(error instanceof Refusal)) return `Something went wrong on this page (${error.message}). Load it again.`;
  const words = sentence(error.message);
  if (error.status === 429) return `${words} Try again ${inSeconds(error.retryAfterS)}.`;
  if (error.mayPass || error.status >= 500) return `${words} Try again in a moment.`;
  return HINTS[error.status] ? `${words} ${HINTS[error.status]}` : words;
}

function sentence(words) {
  const text = words.trim();
  return text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

export function inSeconds(seconds) {
  if (!seconds) return "later";
  if (seconds < 120) return `in ${Math.ceil(seconds)} s`;
  return seconds < 7200 ? `in ${Math.ceil(seconds / 60)} minutes` : `in ${Math.ceil(seconds / 3600)} hours`;
}

export class Api {
  edges = [location.origin];
  user = null;
  #csrf = "";
  #edge = 0;

  /** Called when an edge no longer knows the session. */
  onSignedOut = () => {};

  get edge() {
    return this.edges[this.#edge];
  }

  nextEdge() {
    this.#edge = (this.#edge + 1) % this.edges.length;
  }

  /** Whether there is a session; the first request of every page. */
  async resume() {
    const answer = await this.#fetched("GET", "/v1/session", {});
    if (answer.status === 401) return false;
    this.#keep(await accepted(answer));
    return true;
  }

  async signIn(key) {
    this.#keep(await accepted(await this.#fetched("POST", "/v1/session", { headers: { Authorization: `Bearer ${key}` } })));
  }

  async signOut() {
    await this.ask("DELETE", "/v1/session");
    this.#csrf = "";
    this.user = null;
  }

  /** The JSON of an answer, or null when it has none. Throws Refusal or Unreachable. */
  async ask(method, path, { body, headers = {}, signal } = {}) {
    const options = { headers: { ...headers }, signal };
    if (body !== undefined) {
      options.body = JSON.stringify(body);
      options.headers["Content-Type"] = "application/json";
    }
    return accepted(await this.#authorized(method, path, options));
  }

  /** One try at the edge of the moment, for a stream. Throws Unreachable. */
  async open(path, headers, signal) {
    try {
      return await this.#send(this.edge, "GET", path, { headers, signal });
    } catch (error) {
      signal.throwIfAborted();
      throw new Unreachable(error.message);
    }
  }

  async #authorized(method, path, options) {
    const answer = await this.#fetched(method, path, options);
    if (answer.status === 403 && (await this.resume())) return this.#fetched(method, path, options);
    if (answer.status === 401) this.onSignedOut();
    return answer;
  }

  async #fetched(method, path, options) {
    let last = null;
    for (let tries = 0; tries < this.edges.length; tries += 1) {
      try {
        const timeout = AbortSignal.timeout(TIMEOUT_MS);
        const signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
        last = await this.#send(this.edge, method, path, { ...options, signal });
        if (last.status !== 503) return last;
      } catch {
        options.signal?.throwIfAborted();
      }
      this.nextEdge();
    }
    if (last) return last;
    throw new Unreachable("no edge answers");
  }

  #send(edge, method, path, { headers, ...options }) {
    const own = method === "GET" ? {} : { "X-CSRF-Token": this.#csrf };
    return fetch(edge + path, {
      method,
      credentials: "include",
      cache: "no-store",
      headers: { ...own, ...headers },
      ...options,
    });
  }

  #keep({ user, csrf, edges }) {
    this.user = user;
    this.#csrf = csrf;
    const current = this.edge;
    this.edges = [...new Set([location.origin, ...edges.map((edge) => edge.replace(/\/$/, ""))])];
    this.#edge = Math.max(0, this.edges.indexOf(current));
  }
}

/** The JSON of an answer that is a success. Throws Refusal, or Unreachable when it breaks off. */
export async function accepted(answer) {
  const text = await answer.text().catch((error) => {
    throw new Unreachable(error.message);
  });
  if (answer.ok) return text ? JSON.parse(text) : null;
  const after = Number(answer.headers.get("Retry-After")) || null;
  throw new Refusal(answer.status, errorOf(text, answer.status), after);
}

function errorOf(text, status) {
  try {
    return JSON.parse(text).error;
  } catch {
    return { message: `the server answered ${status}`, code: "unknown" };
  }
}
