// Page of the explorer. The page's address encodes the view, so views can be saved and shared.

import { drawLinks } from "./links.js";
import { searchBox } from "./search.js";
import { context, make, nameOf, narrow, spaces, speak } from "./text.js";

const at = (id) => document.getElementById(id);
const SIDES = ["before", "after"];
const panels = [...document.querySelectorAll(".panel")];
const tabs = [...at("tabs").children]; // tabs that select a panel on phones
const sentences = new Map();

let about = null;
let state = null;
let turn = 0; // number of the current request; answers to earlier requests are dropped

// -- requests -----------------------------------------------------------------------------------------------------------
/** Sends a request. While the server computes word vectors, shows the progress and repeats the request. */
async function ask(what, parameters = {}, isWanted = () => true) {
  for (;;) {
    const content = await askOnce(what, parameters);
    if (!content.pending) return content;
    if (!isWanted()) throw new Error("The view has changed.");
    showProgress(content.pending);
    await new Promise((resume) => setTimeout(resume, 500));
    if (!isWanted()) throw new Error("The view has changed.");
  }
}

function showProgress({ text, fraction, layers }) {
  const [line, bar] = at("waiting").children;
  const others = layers > 1 ? `, then ${layers - 1} more ${layers === 2 ? "layer" : "layers"}` : "";
  const said = `${text}${others} (only needed the first time) …`;
  if (line.textContent !== said) line.textContent = said; // screen readers announce every change
  bar.value = fraction;
  at("waiting").hidden = false;
}

async function askOnce(what, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  let answer;
  try {
    answer = await fetch(`api/${what}?${new URLSearchParams(given)}`);
  } catch {
    throw new Error("The server does not respond. Check that calque explore is still running.");
  }
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

const naming = ({ id, text, lang }) => (text ? { text, lang } : { id });

async function sentenceOf(which) {
  const key = JSON.stringify(naming(which));
  if (!sentences.has(key)) sentences.set(key, await ask("sentence", naming(which)));
  return sentences.get(key);
}

// -- the address ------------------------------------------------------------------------------------------------------
function readAddress() {
  const given = new URLSearchParams(location.search);
  const number = (name) => (/^\d+$/.test(given.get(name) ?? "") ? Number(given.get(name)) : null);
  const fresh = number("id") === null && !given.get("text");
  return {
    id: fresh ? about.start.id : number("id"),
    text: given.get("text"),
    lang: given.get("lang"),
    word: fresh ? about.start.word : number("word"),
    beside: number("beside"),
    language: given.get("with"),
    query: given.get("q"),
    within: about.languages.some(({ lang }) => lang === given.get("in")) ? given.get("in") : null,
    tab: SIDES.includes(given.get("tab")) ? given.get("tab") : "after",
    n: ["1", "3", "5", "10"].includes(given.get("n")) ? Number(given.get("n")) : 3,
    views: SIDES.map((side) => viewOf(given.get(side), side)),
  };
}

function viewOf(given, side) {
  const cut = (given ?? "").lastIndexOf(":");
  const encoder = about.encoders.find((each) => each.name === (cut > 0 ? given.slice(0, cut) : given));
  const chosen = encoder ?? about.encoders.find((each) => each.name === about[side]);
  let layer = encoder && cut > 0 ? given.slice(cut + 1) : "";
  if (!encoder && side === "before" && about.before === about.after) [layer] = chosen.layers; // compares layers of a single encoder
  return { encoder: chosen.name, layer: chosen.layers.includes(layer) ? layer : chosen.own };
}

function address(changed = {}) {
  const next = { ...state, ...changed };
  const given = new URLSearchParams();
  const put = (name, value) => value !== null && value !== undefined && value !== "" && given.set(name, value);
  if (next.text) {
    put("text", next.text);
    put("lang", next.lang);
  } else put("id", next.id);
  put("word", next.word);
  put("with", next.language);
  put("beside", next.beside);
  if (next.n !== 3) put("n", next.n);
  put("q", next.query);
  put("in", next.within);
  if (next.tab !== "after") put("tab", next.tab);
  next.views.forEach(({ encoder, layer }, k) => put(SIDES[k], `${encoder}:${layer}`));
  return `?${given}`;
}

/** Changes the view and the address of the page without a request. */
function keep(changed, how = "replaceState") {
  state = { ...state, ...changed };
  history[how](null, "", address());
}

function go(changed, { replace = false } = {}) {
  keep(changed, replace ? "replaceState" : "pushState");
  return show();
}

/** Shows the view that the address describes. */
function open() {
  state = readAddress();
  at("find").value = state.query ?? "";
  at("lang").value = state.within ?? "";
  showTabs();
  return show();
}

// -- showing ----------------------------------------------------------------------------------------------------------
async function show() {
  turn += 1;
  const mine = turn;
  panels.forEach((panel) => panel.querySelector(".body").setAttribute("aria-busy", "true"));
  try {
    const sentence = await sentenceOf(state);
    if (mine !== turn) return;
    if (state.text && state.lang !== sentence.lang) {
      state.lang = sentence.lang; // the guessed language
      sentences.set(JSON.stringify(naming(state)), sentence);
    }
    if (!(state.word < sentence.words.length) || state.word === null) state.word = longest(sentence.words);
    keep({}); // writes the defaults to the address, too
    const beside = await partnerOf(sentence);
    if (mine !== turn) return;
    showSentence(sentence, beside);
    panels.forEach(showChoice);
    document.title = `${sentence.words[state.word] ?? "calque"} · calque explore`;
    await showAnswers(sentence, beside, mine);
    if (mine === turn) at("trouble").hidden = at("waiting").hidden = true;
  } catch (error) {
    if (mine !== turn) return;
    at("trouble").textContent = error.message;
    at("trouble").hidden = false;
    at("waiting").hidden = true;
    panels.forEach((panel) => panel.querySelector(".body").setAttribute("aria-busy", "false"));
  }
}

const longest = (words) => words.reduce((best, word, k) => (word.length > words[best].length ? k : best), 0);

/** Returns the sentence to draw links to: the clicked sentence, or the translation into the chosen language. */
async function partnerOf(sentence) {
  if (state.beside !== null) return sentenceOf({ id: state.beside });
  const translations = sentence.translations ?? [];
  return translations.find((each) => each.lang === state.language) ?? translations[0] ?? null;
}

function showSentence(sentence, beside) {
  const facts = [nameOf(sentence.lang)];
  if (sentence.text) facts.push(sentence.guessed ? "your sentence (language guessed)" : "your sentence");
  else facts.push(`sentence ${(state.id + 1).toLocaleString("en")}`);
  if (sentence.trained) facts.push("used for alignment");
  at("about").textContent = facts.join(" · ");

  const line = speak(at("words"), sentence.lang);
  const focused = line.contains(document.activeElement);
  const gaps = spaces(sentence.words, sentence.lang);
  line.replaceChildren();
  sentence.words.forEach((word, k) => {
    const button = make("button", { type: "button", "aria-pressed": String(k === state.word) }, word);
    button.addEventListener("click", () => go({ word: k, beside: null }));
    line.append(gaps[k] ? " " : "", button);
  });
  if (focused) line.children[state.word]?.focus();

  const translations = sentence.translations ?? [];
  const group = at("with");
  const known = group.contains(document.activeElement) ? document.activeElement.dataset.lang : null;
  group.hidden = !translations.length;
  group.replaceChildren(group.firstElementChild);
  for (const each of translations) {
    const pressed = beside !== null && beside.id === each.id;
    const attributes = { type: "button", "aria-pressed": String(pressed), "data-lang": each.lang };
    const button = make("button", attributes, nameOf(each.lang));
    button.addEventListener("click", () => go({ language: each.lang, beside: null }, { replace: true }));
    group.append(button);
    if (each.lang === known) button.focus();
  }
  at("n").value = String(state.n);
}

function showChoice(panel, side) {
  const { encoder, layer } = state.views[side];
  const chosen = about.encoders.find((each) => each.name === encoder);
  const aligned = about.encoders.some((each) => each.before) ? "After alignment" : ["First view", "Second view"][side];
  panel.querySelector("h2").textContent = tabs[side].textContent = chosen.before ? "Before alignment" : aligned;
  panel.querySelector(".encoder").value = encoder;
  const layers = chosen.layers.map((name) => {
    const kind = name === chosen.own ? " (default)" : name === "0" ? " (embeddings)" : "";
    return make("option", { value: name }, `${name}${kind}`);
  });
  panel.querySelector(".layer").replaceChildren(...layers);
  panel.querySelector(".layer").value = layer;
}

async function showAnswers(sentence, beside, mine) {
  const isWanted = () => mine === turn;
  const answers = await Promise.all(
    state.views.map(({ encoder, layer }) => {
      const asked = { encoder, layer, ...naming(state) };
      return Promise.all([
        ask("neighbours", { ...asked, word: state.word, n: state.n }, isWanted),
        beside ? ask("links", { ...asked, to: beside.id }, isWanted) : null,
      ]);
    }),
  );
  if (mine !== turn) return;
  const same = state.views[0].encoder === state.views[1].encoder && state.views[0].layer === state.views[1].layer;
  answers.forEach(([found, linked], side) => {
    const other = answers[1 - side][1];
    const body = panels[side].querySelector(".body");
    const focus = focusIn(body);
    const figure = linked
      ? drawLinks(sentence, beside, linked.links, same ? null : other.links, state.word)
      : make("p", { class: "links soft" }, "Choose one of the nearest words below to draw word links to its sentence.");
    body.replaceChildren(figure, ...neighbours(found, sentence, beside));
    body.setAttribute("aria-busy", "false");
    figure.querySelector(".pair")?.redraw();
    if (focus) body.querySelector(`[data-row="${focus}"]`)?.focus();
  });
  at("status").textContent = answers.map(([found], side) => spoken(found, side)).join(" ");
}

const focusIn = (body) => (body.contains(document.activeElement) ? document.activeElement.dataset.row : null);

function neighbours(found, sentence, beside) {
  if (!found.covered) {
    return [make("p", { class: "tally soft" }, `The encoder has no vector for “${found.word}”, because the sentence is too long or the tokenizer drops the word.`)];
  }
  const others = found.languages.filter((each) => !each.own);
  const translated = new Set((sentence.translations ?? []).map((each) => each.lang));
  const counted = others.filter((each) => translated.has(each.lang) && each.words.length);
  const right = counted.filter((each) => each.words[0].translation).length;
  const parts = [];
  if (counted.length) {
    const said = `${counted.length === 1 ? "language" : "languages"} in which the nearest word is in the translation of this sentence`;
    parts.push(make("p", { class: "tally" }, make("b", {}, `${right} of ${counted.length}`), make("span", { class: "soft" }, said)));
  }
  const list = make("div", { class: "near" });
  [...others, ...found.languages.filter((each) => each.own)].forEach((each, k) => {
    const title = make("h3", {}, nameOf(each.lang));
    if (each.own) title.append(make("small", {}, "same language"));
    if (k === 0) title.append(heads());
    list.append(title, rows(each.words, each.lang, beside));
  });
  const { total, nearest, farthest } = found.same;
  if (total) {
    const title = make("h3", {}, `“${found.word}” in other sentences`);
    title.append(make("small", {}, `${total.toLocaleString("en")} ${total === 1 ? "occurrence" : "occurrences"}, by similarity`));
    list.append(title, rows(nearest, "nearest", beside));
    if (farthest.length) {
      list.append(make("p", { class: "gap" }, total > 8 ? "… and the least similar occurrences" : "… and less similar occurrences"));
      list.append(rows(farthest, "farthest", beside));
    }
  }
  parts.push(list);
  if (counted.length) {
    parts.push(make("p", { class: "legend soft" }, make("span", { class: "dot", "aria-hidden": "true" }), "word in a translation of this sentence"));
  }
  return parts;
}

function heads() {
  return make("span", { class: "numbers", "aria-hidden": "true" }, make("span", {}, "CSLS"), make("span", {}, "cosine"));
}

function rows(words, key, beside) {
  const list = make("ol");
  words.forEach((hit, k) => {
    const value = (number, name, kind) =>
      make("span", { class: `number ${kind}` }, make("span", { class: "hidden" }, `${name} `), figure(number));
    const chosen = beside !== null && beside.id === hit.id;
    const button = make(
      "button",
      { type: "button", "aria-pressed": String(chosen), "data-row": `${key}-${k}`, class: hit.translation ? "hit" : null },
      make("span", { class: "dot" }),
      context(hit),
    );
    if (hit.translation) button.append(make("span", { class: "hidden" }, "in a translation of this sentence,"));
    button.append(value(hit.csls, hit.csls === undefined ? "" : "CSLS", "first"), value(hit.cosine, "cosine", hit.csls === undefined ? "" : "cosine"));
    button.title = "Draw word links to this sentence";
    button.addEventListener("click", () => go({ beside: hit.id }, { replace: true }));
    const changed = { id: hit.id, text: null, lang: null, word: hit.word, beside: null };
    const link = make("a", { href: address(changed), "aria-label": `Show the nearest words of ${hit.words[hit.word]} in this sentence`, title: "Show the nearest words of this word" }, "→");
    link.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return; // the browser opens a new tab
      event.preventDefault();
      at("words").focus({ preventScroll: true });
      scrollTo({ top: 0 });
      go(changed);
    });
    list.append(make("li", {}, button, link));
  });
  return list;
}

function figure(number) {
  const text = number === undefined ? "" : number.toFixed(2);
  return text === "-0.00" ? "0.00" : text.replace("-", "−");
}

function spoken(found, side) {
  const { encoder } = state.views[side];
  if (!found.covered) return `${encoder}: no vector for ${found.word}.`;
  const nearest = found.languages.filter((each) => !each.own && each.words.length);
  const said = nearest.map((each) => `${nameOf(each.lang)} ${each.words[0].words[each.words[0].word]}`);
  return `${encoder}: nearest to ${found.word}: ${said.join(", ")}.`;
}

// -- tabs in narrow windows -----------------------------------------------------------------------------------
function showTabs() {
  SIDES.forEach((side, k) => {
    const open = state.tab === side;
    tabs[k].setAttribute("aria-selected", String(open));
    tabs[k].tabIndex = open ? 0 : -1;
    panels[k].classList.toggle("open", open);
    if (narrow.matches) panels[k].setAttribute("role", "tabpanel");
    else panels[k].removeAttribute("role");
  });
}

// -- user actions -----------------------------------------------------------------------------------------------
function listen() {
  panels.forEach((panel, side) => {
    const change = (view) => {
      const views = state.views.map((old, k) => (k === side ? view : old));
      go({ views }, { replace: true });
    };
    panel.querySelector(".encoder").addEventListener("change", (event) => {
      const chosen = about.encoders.find((each) => each.name === event.target.value);
      const { layer } = state.views[side];
      change({ encoder: chosen.name, layer: chosen.layers.includes(layer) ? layer : chosen.own });
    });
    panel.querySelector(".layer").addEventListener("change", (event) => change({ ...state.views[side], layer: event.target.value }));
  });
  tabs.forEach((tab, k) =>
    tab.addEventListener("click", () => {
      keep({ tab: SIDES[k] });
      showTabs();
    }),
  );
  at("tabs").addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const other = tabs.find((tab) => tab !== document.activeElement);
    other.focus();
    other.click();
  });
  narrow.addEventListener("change", showTabs);
  at("n").addEventListener("change", (event) => go({ n: Number(event.target.value) }, { replace: true }));
  at("words").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const buttons = [...at("words").children];
    const here = buttons.indexOf(document.activeElement);
    if (!step || here < 0) return;
    event.preventDefault();
    const forward = getComputedStyle(at("words")).direction === "rtl" ? -step : step;
    buttons[(here + forward + buttons.length) % buttons.length].focus();
  });
  at("another").addEventListener("click", another);
  addEventListener("popstate", open);
  const find = (query, lang) => ask("search", { q: query, lang, limit: 8 }).catch(() => ({ total: 0, sentences: [] }));
  searchBox(at("find"), at("found"), at("lang"), find, chosen, (query) => keep({ query, within: at("lang").value }));
}

/** Shows a sentence that the user found or typed. */
async function chosen({ id, text, words, terms }) {
  if (text === undefined) {
    const hit = words.findIndex((each) => terms.some((term) => each.toLowerCase() === term));
    go({ id, text: null, lang: null, word: hit < 0 ? null : hit, beside: null });
    return;
  }
  try {
    const sentence = await ask("sentence", { text, lang: at("lang").value });
    sentences.set(JSON.stringify(naming(sentence)), sentence);
    go({ id: null, text: sentence.text, lang: sentence.lang, word: null, beside: null });
  } catch (error) {
    at("trouble").textContent = error.message;
    at("trouble").hidden = false;
  }
}

/** Shows a random sentence in the language selected at the top, or else in the language of the current sentence. */
function another() {
  const lang = at("lang").value || sentences.get(JSON.stringify(naming(state)))?.lang;
  const { first, sentences: count } = about.languages.find((each) => each.lang === lang) ?? about.languages[0];
  const id = first + Math.floor(Math.random() * count);
  go({ id, text: null, lang: null, word: null, beside: null });
}

async function start() {
  try {
    about = await ask("about");
  } catch (error) {
    at("trouble").textContent = error.message;
    at("trouble").hidden = false;
    return;
  }
  for (const { lang } of about.languages) at("lang").append(make("option", { value: lang }, nameOf(lang)));
  for (const select of document.querySelectorAll(".encoder")) {
    select.replaceChildren(...about.encoders.map(({ name }) => make("option", { value: name }, name)));
  }
  const counted = about.languages.map(({ lang, sentences: n }) => `${nameOf(lang)} ${n.toLocaleString("en")}`).join(", ");
  at("size").textContent = `The text has ${about.words.toLocaleString("en")} words. Sentences: ${counted}.`;
  listen();
  await open();
}

start();
