// Two sentences with lines between linked words: side by side, or one below the other if they are long.

import { joined, make, nameOf, spaces, speak } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const watched = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.redraw?.()));

/**
 * Draws the links between two sentences.
 * @param links [[index of the source word, index of the target word]]
 * @param others links in the other view, or null; links that are not in `others` are highlighted
 * @param chosen index of the selected word in the first sentence
 */
export function drawLinks(source, target, links, others, chosen) {
  const shared = others && new Set(others.map(([i, j]) => `${i}-${j}`));
  const alone = links.map(([i, j]) => shared !== null && !shared.has(`${i}-${j}`));
  const lines = [line(source, "source"), line(target, "target")];
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  const paths = links.map((_, k) => {
    const path = document.createElementNS(SVG, "path");
    if (alone[k]) path.classList.add("alone");
    svg.append(path);
    return path;
  });
  const pair = make("div", { class: "pair" }, lines[0].element, lines[1].element, svg);
  lines[0].words[chosen]?.classList.add("chosen-word");

  const light = (side, word) => {
    const linked = links.map((link) => word !== null && link[side] === word);
    paths.forEach((path, k) => {
      path.classList.toggle("lit", linked[k]);
      if (linked[k]) svg.append(path); // to the front
    });
    lines.forEach(({ words }, other) =>
      words.forEach((element, place) => {
        const lit = links.some((link, k) => linked[k] && link[other] === place);
        element.classList.toggle("lit", lit);
      }),
    );
  };
  const rest = () => light(0, chosen);
  lines.forEach(({ words }, side) =>
    words.forEach((element, place) => {
      element.addEventListener("pointerenter", () => light(side, place));
      element.addEventListener("pointerleave", rest);
    }),
  );
  rest();

  let width = null;
  pair.redraw = () => {
    if (pair.clientWidth !== width) {
      width = pair.clientWidth;
      pair.classList.remove("ladder");
      const long = lines.some(({ element }) => element.scrollWidth > width + 1);
      pair.classList.toggle("ladder", long);
    }
    const frame = pair.getBoundingClientRect();
    const ladder = pair.classList.contains("ladder");
    links.forEach(([i, j], k) => {
      const from = lines[0].words[i].getBoundingClientRect();
      const to = lines[1].words[j].getBoundingClientRect();
      paths[k].setAttribute("d", ladder ? across(from, to, frame) : down(from, to, frame));
    });
  };
  watched.observe(pair);

  const count = alone.filter(Boolean).length;
  const caption = make("figcaption");
  caption.append(make("span", {}, `${links.length} ${links.length === 1 ? "link" : "links"}`));
  if (shared && links.length > count) caption.append(make("span", { class: "key" }, "in both views"));
  if (count) caption.append(make("span", { class: "key alone" }, "only in this view"));
  const spoken = links.map(([i, j]) => `${source.words[i]} – ${target.words[j]}`).join(", ");
  caption.append(make("span", { class: "hidden" }, spoken));
  const name = `Word links between the ${nameOf(source.lang)} and the ${nameOf(target.lang)} sentence`;
  return make("figure", { class: "links", "aria-label": name }, pair, caption);
}

function line(sentence, kind) {
  const element = speak(make("p", { class: `line ${kind}`, translate: "no" }), sentence.lang);
  const gaps = spaces(sentence.words, sentence.lang);
  const words = sentence.words.map((word, k) => {
    const span = make("span", {}, word);
    element.append(gaps[k] ? " " : "", span);
    return span;
  });
  element.title = joined(sentence.words, sentence.lang);
  return { element, words };
}

function down(from, to, frame) {
  const x1 = from.left + from.width / 2 - frame.left;
  const x2 = to.left + to.width / 2 - frame.left;
  const y1 = from.bottom - frame.top + 1;
  const y2 = to.top - frame.top - 1;
  const middle = (y1 + y2) / 2;
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${x1.toFixed(1)} ${middle} ${x2.toFixed(1)} ${middle} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}

function across(from, to, frame) {
  const x1 = from.right - frame.left + 2;
  const x2 = to.left - frame.left - 2;
  const y1 = from.top + from.height / 2 - frame.top;
  const y2 = to.top + to.height / 2 - frame.top;
  const middle = (x1 + x2) / 2;
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${middle} ${y1.toFixed(1)} ${middle} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}
