// Words on the page: how they are spaced, in which direction they run, what their language is called.

const CLOSING = /^[.,;:!?…)\]}»”’%。，、；：！？）》」』]+$/u;
const OPENING = /^[([{«“„¿¡（《「『]+$/u;
const FRENCH = /^[;:!?»]+$/u;
const LATIN = /^[\p{Script=Latin}\p{Nd}]/u;
const displayed = new Intl.DisplayNames(["en"], { type: "language" });

export const narrow = matchMedia("(max-width: 36rem)"); // as in style.css

let languages = new Map();

export function know(list) {
  languages = new Map(list.map((each) => [each.lang, each]));
}

export function nameOf(lang) {
  try {
    return displayed.of(lang.replaceAll("_", "-")) ?? lang;
  } catch {
    return lang; // a tag that no standard knows
  }
}

/** Marks an element as being in a language. */
export function speak(element, lang) {
  element.lang = lang.replaceAll("_", "-");
  element.dir = languages.get(lang)?.dir ?? "auto";
  return element;
}

/** Whether a space stands before each word. */
export function spaces(words, lang) {
  const spaced = languages.get(lang)?.spaced ?? true;
  const base = lang.slice(0, 2);
  return words.map((word, k) => {
    if (k === 0) return false;
    const last = words[k - 1];
    if (!spaced) return LATIN.test(word) && LATIN.test(last);
    if (base === "fr" && FRENCH.test(word)) return true;
    if (CLOSING.test(word)) return false;
    if (OPENING.test(last)) return base === "fr" && last === "«";
    if (/^['’]\p{L}/u.test(word)) return false;
    return !/\p{L}['’]$/u.test(last);
  });
}

/** The words as text. */
export function joined(words, lang) {
  const gaps = spaces(words, lang);
  return words.map((word, k) => (gaps[k] ? " " : "") + word).join("");
}

/** A sentence's words around one of them, that one marked. */
export function context(sentence) {
  const gaps = spaces(sentence.words, sentence.lang);
  const dense = !(languages.get(sentence.lang)?.spaced ?? true);
  let start = 0;
  const before = sentence.words.slice(0, sentence.word);
  let room = (dense ? 10 : 26) / (narrow.matches ? 2.5 : 1); // letters: the word itself must be seen on a phone
  for (let k = before.length - 1; k >= 0; k -= 1) {
    room -= before[k].length + 1;
    if (room < 0) {
      start = k + 1;
      break;
    }
  }
  const element = speak(document.createElement("span"), sentence.lang);
  element.className = "context";
  element.translate = false;
  let text = start ? "… " : "";
  sentence.words.forEach((word, k) => {
    if (k < start) return;
    if (gaps[k] && k > start) text += " ";
    if (k !== sentence.word) {
      text += word;
      return;
    }
    const mark = document.createElement("mark");
    mark.textContent = word;
    element.append(text, mark);
    text = "";
  });
  element.append(text);
  element.title = joined(sentence.words, sentence.lang);
  return element;
}

/** An element with attributes and children. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}
