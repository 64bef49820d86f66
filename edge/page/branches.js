// A saved message's tools: go to what else was said in its place, ask a question otherwise, ask for another answer.
// The conversation is a tree; what is shown is one branch. Knows messages as the API gives them, and no requests.

import { announce, byId, fromTemplate } from "./dom.js";
import { rest } from "./follow.js";

/** How long it takes at most until a reply that has ended is saved. */
const SAVED_WAITS_MS = [150, 300, 600, 1200, 2400];

/**
 * Puts the tools below a message, in place of those that it had. `does` gets `through(id, direction)`,
 * `ask({ text, parent })` for a question in place of this one, and `ask({ parent })` for another answer.
 */
export function offerTools(element, message, does) {
  const tools = fromTemplate("t-tools");
  const ofUser = message.role === "user";
  const [edit, again] = [tools.querySelector(".edit"), tools.querySelector(".again")];
  if (ofUser) edit.addEventListener("click", () => editIn(element, message, does));
  else again.addEventListener("click", () => does.ask({ parent: message.parent }));
  edit.hidden = !ofUser;
  again.hidden = ofUser || !message.parent;
  offerBranches(tools.querySelector(".branches"), message, does);
  element.querySelector(".turn-tools")?.remove();
  element.append(tools);
  element.dataset.id = message.id;
}

function offerBranches(place, { id, siblings }, does) {
  const at = siblings.indexOf(id);
  place.hidden = siblings.length < 2 || at < 0;
  place.querySelector(".place").textContent = `${at + 1} of ${siblings.length}`;
  for (const [direction, step] of [["previous", -1], ["next", 1]]) {
    const arrow = place.querySelector(`.${direction}`);
    const other = siblings[at + step];
    arrow.disabled = !other;
    arrow.addEventListener("click", () => does.through(other, direction));
  }
}

/** Gives their tools to the messages of the newest page, once that reply is among them. */
export async function offerToolsOnceSaved(list, reply, newest, does, signal) {
  for (const waitMs of SAVED_WAITS_MS) {
    const { messages } = await newest();
    if (messages.some((one) => one.role === "assistant" && one.reply === reply)) {
      for (const message of messages) {
        const element = elementOf(list, message.id);
        if (element && !element.querySelector(".editing")) offerTools(element, message, does);
      }
      return;
    }
    await rest(waitMs, signal);
  }
}

/** Shows another branch, with the message where its sibling was on the screen. */
export function inPlace(list, { id, siblings }, show) {
  const topOf = (one) => elementOf(list, one)?.getBoundingClientRect().top;
  const before = siblings.map(topOf).find((top) => top !== undefined) ?? 0;
  show();
  byId("scroller").scrollTop += (topOf(id) ?? before) - before;
}

/** Moves the focus to where it was before another branch was shown, and says which one it is. */
export function arrived(list, id, direction) {
  const branches = elementOf(list, id)?.querySelector(".branches");
  if (!branches) return;
  const arrow = branches.querySelector(`.${direction}`);
  (arrow.disabled ? branches.querySelector("button:enabled") : arrow)?.focus();
  announce(`Version ${branches.querySelector(".place").textContent}`);
}

export function elementOf(list, id) {
  return [...list.children].find((element) => element.dataset.id === id);
}

/** Leaves of the branch what comes up to that message; false when it is not shown. */
export function cutAfter(list, parent) {
  const last = parent === "root" ? null : elementOf(list, parent);
  if (last === undefined) return false;
  while (list.lastElementChild !== last) list.lastElementChild.remove();
  return true;
}

/** The question's text becomes a field: Enter sends, Shift+Enter makes a line, Esc leaves it as it was. */
function editIn(element, { text, parent }, does) {
  const form = fromTemplate("t-edit");
  const field = form.querySelector("textarea");
  const shown = [element.querySelector(".text"), element.querySelector(".turn-tools")];
  const hide = (hidden) => shown.forEach((one) => (one.hidden = hidden));
  const cancel = () => {
    form.remove();
    hide(false);
    element.querySelector(".edit").focus();
  };
  const submit = () => {
    if (field.value.trim() === "") return;
    form.remove();
    hide(false);
    does.ask({ text: field.value, parent: parent ?? "root" });
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      cancel();
    } else if (event.key === "Enter" && event.target === field && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  form.querySelector(".cancel").addEventListener("click", cancel);
  field.value = text;
  field.rows = Math.min(10, text.split("\n").length);
  hide(true);
  element.append(form);
  field.focus();
}

/** Whoever used a tool that is gone now goes on writing. */
export function backToComposer() {
  if (!document.activeElement || document.activeElement === document.body) byId("message").focus();
}
