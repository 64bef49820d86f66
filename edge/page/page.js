// The chat page's parts put together: the session decides whether the door or the chat is shown, the address which
// conversation. `#c/<id>` is a conversation, anything else the place to begin one.

import { Api, explain } from "./api.js";
import { Composer, followEnd } from "./composer.js";
import { announce, byId, copyText } from "./dom.js";
import { forget, forgetAll, keepDraft } from "./outbox.js";
import { drawer, Sidebar } from "./sidebar.js";
import { Talk } from "./talk.js";

const NEW = "New conversation";

const api = new Api();
const toEnd = followEnd();
const closeDrawer = drawer();
const sidebar = new Sidebar(api, {
  deleted: forgotten,
  titled: (id, title) => id === talk.conversation && entitle(title),
});
const composer = new Composer({ send, stop: () => talk.stop() });
const talk = new Talk(api, {
  started: begun,
  running: (running) => composer.running(running),
  ended: () => sidebar.refresh(),
  returned: (text) => composer.put(text),
  model: chosenModel,
  titled: (text) => entitle(sidebar.titleOf(talk.conversation) ?? text),
});
let opened = false;

function entitle(title) {
  const words = title.trim() || NEW;
  byId("title").textContent = words;
  document.title = words === NEW ? "Laneway" : `${words} – Laneway`;
}

function addressed() {
  const found = /^#c\/(.+)$/.exec(location.hash);
  try {
    return found && decodeURIComponent(found[1]);
  } catch {
    return null;
  }
}

function go(conversation) {
  const hash = conversation === null ? "" : `#c/${encodeURIComponent(conversation)}`;
  if (location.hash !== hash) history.pushState(null, "", location.pathname + hash);
  return show();
}

async function show() {
  const conversation = addressed();
  closeDrawer();
  sidebar.open(conversation);
  entitle(sidebar.titleOf(conversation) ?? "");
  const open = talk.open(conversation);
  composer.open(conversation);
  await open;
  toEnd();
}

function begun(conversation, text) {
  history.pushState(null, "", `${location.pathname}#c/${encodeURIComponent(conversation)}`);
  composer.begun(conversation);
  sidebar.begun(conversation, text);
  sidebar.open(conversation);
  entitle(text);
}

function forgotten(conversation) {
  if (conversation === talk.conversation) go(null);
  forget(conversation);
  keepDraft(conversation, "");
}

function send(text) {
  talk.send(text, chosenModel());
  toEnd();
}

function chosenModel() {
  return byId("model-choice").hidden ? undefined : byId("model").value;
}

async function offerModels() {
  const { data } = await api.ask("GET", "/v1/models");
  byId("model").replaceChildren(...data.map(({ id }) => new Option(id, id)));
  byId("model-choice").hidden = data.length < 2;
}

function askKey(words) {
  byId("app").hidden = true;
  byId("door").hidden = false;
  byId("door-words").textContent = words;
  byId("door-error").textContent = "";
  byId("key").focus();
}

/** Shows the chat; it is left as it was when the same user has signed in again. */
async function enter(before) {
  if (before !== null && before !== api.user) {
    forgetAll();
    location.reload();
    return;
  }
  byId("door").hidden = true;
  byId("app").hidden = false;
  byId("user").textContent = api.user;
  if (opened) return;
  opened = true;
  const listed = Promise.all([sidebar.refresh(), offerModels()]);
  await show();
  try {
    await listed;
  } catch (error) {
    byId("note").textContent = explain(error);
  }
  if (talk.conversation) entitle(sidebar.titleOf(talk.conversation) ?? byId("title").textContent);
}

byId("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const before = api.user;
  const error = byId("door-error");
  error.textContent = "";
  try {
    await api.signIn(byId("key").value.trim());
  } catch (refused) {
    error.textContent = refused.status === 401 ? "This key is not known. Check it and try again." : explain(refused);
    byId("key").select();
    return;
  }
  byId("key").value = "";
  await enter(before);
});

byId("sign-out").addEventListener("click", async () => {
  try {
    await api.signOut();
  } catch (error) {
    byId("note").textContent = explain(error);
    return;
  }
  forgetAll();
  talk.close();
  location.replace(location.pathname);
  location.reload();
});

document.addEventListener("click", async ({ target }) => {
  const copy = target.closest?.(".copy");
  if (!copy) return;
  try {
    await copyText(copy.closest(".code").querySelector("code").textContent);
    copy.textContent = "Copied";
  } catch {
    copy.textContent = "Not copied";
  }
  announce(copy.textContent);
  setTimeout(() => (copy.textContent = "Copy"), 1500);
});

byId("new").addEventListener("click", () => go(null));
byId("skip").addEventListener("click", () => composer.focus());
addEventListener("popstate", show);
document.addEventListener("visibilitychange", () => {
  if (opened && !document.hidden && !byId("app").hidden) sidebar.refresh();
});

api.onSignedOut = () => askKey("Your session has ended. Sign in again to go on where you were.");

async function start() {
  try {
    if (await api.resume()) await enter(null);
    else askKey("Sign in with your API key.");
  } catch (error) {
    askKey(explain(error));
  }
}

start();
