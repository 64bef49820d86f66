// What this tab has sent and not yet seen saved: kept over a reload, and posted under one key until an edge takes it.
// sessionStorage belongs to one tab, so two tabs never send each other's messages.

import { Unreachable } from "./api.js";
import { rest, waitMs } from "./follow.js";

const MOST_TRIES = 8;
const PENDING = "pending ";
const DRAFT = "draft ";

/**
 * The message `{key, text, model, parent, reply}` of a conversation that may not be saved yet; null when there is none.
 * One without a text asks for another answer to its parent.
 */
export function pendingOf(conversation) {
  return JSON.parse(sessionStorage.getItem(PENDING + conversation));
}

export function keep(conversation, message) {
  sessionStorage.setItem(PENDING + conversation, JSON.stringify(message));
}

export function forget(conversation) {
  sessionStorage.removeItem(PENDING + conversation);
}

export function draftOf(conversation) {
  return sessionStorage.getItem(DRAFT + conversation) ?? "";
}

export function keepDraft(conversation, text) {
  if (text) sessionStorage.setItem(DRAFT + conversation, text);
  else sessionStorage.removeItem(DRAFT + conversation);
}

export function forgetAll() {
  sessionStorage.clear();
}

/** The id of the reply. A lost answer is asked for again with the same key. Throws Refusal or Unreachable. */
export async function post(api, conversation, { key, text, model, parent }, { onBroken, signal }) {
  const path = `/v1/conversations/${encodeURIComponent(conversation)}/messages`;
  const options = { body: { text, model, parent }, headers: { "Idempotency-Key": key }, signal };
  for (let tries = 1; ; tries += 1) {
    try {
      return (await api.ask("POST", path, options)).reply;
    } catch (error) {
      signal.throwIfAborted();
      if (tries === MOST_TRIES || !isLost(error)) throw error;
      onBroken();
      await rest(waitMs(tries), signal);
    }
  }
}

/** Whether the same message may still be taken under the same key. */
export function isLost(error) {
  return error instanceof Unreachable || error.mayPass === true;
}
