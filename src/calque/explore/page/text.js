// Display of words: spaces between words, writing direction, and names of languages.

const CLOSING = /^[.,;:!?…)\]}»”’%。，、；：！？）》」』]+$/u;
const OPENING = /^[([{«“„¿¡（《「『]+$/u;
const FRENCH = /^[;:!?»]+$/u;
const LATIN = /^[\p{Script=Latin}\p{Nd}]/u;
const UNSPACED = /^(zh|ja|th|lo|km|my)(?![a-z])/i;
const displayed = new Intl.DisplayNames(["en"], { type: "language" });

export const narrow = matchMedia("(max-width: 36rem)"); // the same width as in style.css

export function nameOf(lang) {
  try {
    return displayed.of(lang.replaceAll("_", "-")) ?? lang;
  } catch {
    return lang; // not a standard language tag
  }
}

/** Sets the language and the writing direction of an element. */
export function speak(element, lang) {
  element.lang = lang.replaceAll("_", "-");
  element.dir = "auto";
  return element;
}

/** Returns, for each word, whether a space precedes the word. */
export function spaces(words, lang) {
  const spaced = !UNSPACED.test(lang);
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

/** Returns the words as text. */
export function joined(words, lang) {
  const gaps = spaces(words, lang);
  return words.map((word, k) => (gaps[k] ? " " : "") + word).join("");
}

/** Returns an element with a marked word and its surrounding words. */
export function context(sentence) {
  const { words, word, lang } = sentence;
  const gaps = spaces(words, lang);
  let room = (UNSPACED.test(lang) ? 10 : 26) / (narrow.matches ? 2.5 : 1); // maximum number of letters before the word
  let start = word;
  while (start > 0 && room > words[start - 1].length) {
    start -= 1;
    room -= words[start].length + 1;
  }
  const text = (first, last) => words.slice(first, last).map((each, k) => (gaps[first + k] && first + k > start ? " " : "") + each).join("");
  const mark = make("mark", {}, words[word]);
  const gap = gaps[word] && word > start ? " " : "";
  const shown = make("span", { class: "context", translate: "no", title: joined(words, lang) });
  shown.append((start ? "… " : "") + text(start, word) + gap, mark, text(word + 1, words.length));
  return speak(shown, lang);
}

/** Creates an element with attributes and children. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}
