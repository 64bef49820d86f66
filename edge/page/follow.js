// One reply, followed to its end over as many connections and edges as it takes: numbered events in order, each once.
// The cursor is the last event id seen; whatever breaks, the next connection goes on after it. Knows nothing of pages.

import { accepted, Unreachable } from "./api.js";
import { Broken, EventParser, eventsOf } from "./sse.js";

export const ENDS = new Set(["finished", "stopped", "flagged", "failed", "shed"]);
const FIRST_WAIT_MS = 200;
const LONGEST_WAIT_MS = 4000;
const SILENT_MS = 45_000;

/**
 * Resolves with the end `{type, data}`, or null when the edge says that it was seen before. `onEvent(type, data)` gets
 * each event once, `onOpen()` and `onBroken()` each connection. Throws Refusal when the reply cannot be read, and when
 * `signal` aborts.
 */
export async function follow(api, reply, { onEvent, onOpen, onBroken, signal }) {
  const place = { cursor: -1, retryMs: 0 };
  for (let tries = 0; ; tries += 1) {
    const before = place.cursor;
    try {
      return await connection(api, reply, place, { onEvent, onOpen, signal });
    } catch (error) {
      signal.throwIfAborted();
      if (!passes(error)) throw error;
      if (place.cursor > before) tries = 0;
      onBroken();
      api.nextEdge();
      await rest(tries === 0 ? place.retryMs : waitMs(tries), signal);
    }
  }
}

async function connection(api, reply, place, { onEvent, onOpen, signal }) {
  const headers = place.cursor < 0 ? {} : { "Last-Event-ID": String(place.cursor) };
  const watch = new Watch(signal);
  try {
    const answer = await api.open(`/v1/replies/${reply}/events`, headers, watch.signal);
    if (answer.status === 204) return null;
    if (!answer.ok) await accepted(answer);
    onOpen();
    const parser = new EventParser();
    for await (const event of eventsOf(answer.body, parser, () => watch.heard())) {
      place.retryMs = parser.retryMs ?? 0;
      const end = take(event, place, onEvent);
      if (end) return end;
    }
    place.retryMs = parser.retryMs ?? 0;
    throw new Broken("the stream ended before the reply");
  } finally {
    watch.over();
  }
}

/** Gives an event on unless it is a repeat; the end's event, if this is it. */
function take({ type, data, id }, place, onEvent) {
  if (type === "error") throw new Broken(data);
  const numbered = type === "accepted" || type === "token" || ENDS.has(type);
  if (numbered) {
    const n = Number(id);
    if (n <= place.cursor) return null;
    if (n !== place.cursor + 1) throw new Broken(`event ${n} came after ${place.cursor}`);
    place.cursor = n;
  }
  const event = { type, data: JSON.parse(data) };
  onEvent(event.type, event.data);
  return ENDS.has(type) ? event : null;
}

function passes(error) {
  return error instanceof Broken || error instanceof Unreachable || error.mayPass === true;
}

export function waitMs(tries) {
  return Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** tries) * (0.75 + Math.random() / 2);
}

/** Waits that long, or until the network is back. Throws when `signal` aborts. */
export function rest(ms, signal) {
  return new Promise((resolve, reject) => {
    const over = new AbortController();
    const done = (settle) => () => {
      over.abort();
      clearTimeout(timer);
      settle(signal.reason);
    };
    const timer = setTimeout(done(resolve), ms);
    addEventListener("online", done(resolve), { signal: over.signal });
    signal.addEventListener("abort", done(reject), { signal: over.signal });
  });
}

/** Aborts a connection that is dead without saying so: the network is gone, or it is silent for longer than pings are. */
class Watch {
  #broken = new AbortController();
  #timer = null;

  constructor(signal) {
    this.signal = AbortSignal.any([signal, this.#broken.signal]);
    addEventListener("offline", () => this.#cut("the network is gone"), { signal: this.#broken.signal });
    this.heard();
  }

  heard() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#cut("the connection is silent"), SILENT_MS);
  }

  over() {
    clearTimeout(this.#timer);
    this.#broken.abort();
  }

  #cut(why) {
    this.#broken.abort(new Broken(why));
  }
}
