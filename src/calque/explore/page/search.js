// Search box that finds sentences in the text or accepts a sentence typed by the user.

import { joined, make, nameOf, spaces, speak } from "./text.js";

/**
 * @param input, list, language elements of the box
 * @param ask async (query, lang) => {total, sentences}
 * @param choose ({id, words, terms}) | ({text}) => void: called with a sentence from the text or a typed sentence
 * @param keep (query) => void: called when the query or its language changes
 */
export function searchBox(input, list, language, ask, choose, keep) {
  let options = [];
  let active = -1;
  let timer = 0;
  let turn = 0;

  const close = () => {
    turn += 1;
    clearTimeout(timer);
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  };

  const activate = (k) => {
    active = k;
    options.forEach(({ element }, place) => element.setAttribute("aria-selected", String(place === k)));
    if (k >= 0) {
      input.setAttribute("aria-activedescendant", options[k].element.id);
      options[k].element.scrollIntoView({ block: "nearest" });
    }
  };

  const take = (k) => {
    const chosen = options[k]?.value;
    if (!chosen) return;
    close();
    choose(chosen);
  };

  const show = (found, query) => {
    options = offers(found, query, language.value);
    options.forEach(({ element }, k) => {
      element.id = `option-${k}`;
      element.addEventListener("pointerdown", (event) => event.preventDefault()); // the input keeps the focus
      element.addEventListener("click", () => take(k));
      element.addEventListener("pointermove", () => k !== active && activate(k));
    });
    list.replaceChildren(...options.map(({ element }) => element));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate(0);
  };

  const look = async () => {
    const query = input.value.trim();
    keep(query);
    if (!query) {
      close();
      return;
    }
    turn += 1;
    const mine = turn;
    const found = await ask(query, language.value);
    if (mine === turn) show(found, query);
  };

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, 120);
  });
  input.addEventListener("click", () => {
    if (!list.hidden) return;
    input.select(); // typing replaces the previous query
    look();
  });
  language.addEventListener("change", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", async (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") close();
    else if (event.key === "Enter") {
      event.preventDefault();
      if (list.hidden || !options.length) {
        clearTimeout(timer);
        await look();
      }
      take(Math.max(active, 0));
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) {
        look();
        return;
      }
      const step = event.key === "ArrowDown" ? 1 : -1;
      activate((active + step + options.length) % options.length);
    }
  });
}

function offers(found, query, lang) {
  const options = [];
  const offer = (value, ...children) => {
    const element = make("li", { role: "option", "aria-selected": "false" }, ...children);
    options.push({ value, element });
    return element;
  };
  const terms = query.toLowerCase().split(/\s+/);
  for (const sentence of found.sentences) {
    const value = { id: sentence.id, words: sentence.words, terms };
    offer(value, highlighted(sentence, terms), make("span", { class: "soft" }, nameOf(sentence.lang)));
  }
  const more = found.total - found.sentences.length;
  const where = lang ? ` in ${nameOf(lang)}` : "";
  const own = offer({ text: query }, make("span", { class: "own" }, `Use “${query}” as your own sentence${where}`));
  if (more > 0) own.append(make("span", { class: "soft" }, `${more.toLocaleString("en")} more found`));
  return options;
}

function highlighted(sentence, terms) {
  const element = speak(make("span", { translate: "no" }), sentence.lang);
  const gaps = spaces(sentence.words, sentence.lang);
  sentence.words.forEach((word, k) => {
    const hit = terms.some((term) => word.toLowerCase().includes(term));
    element.append(gaps[k] ? " " : "", hit ? make("mark", {}, word) : word);
  });
  element.title = joined(sentence.words, sentence.lang);
  return element;
}
