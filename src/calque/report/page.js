// Sorting of tables, selection of views, and tooltips. Text from results is always inserted as text, never as HTML.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const make = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };

  // -- light and dark
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const button = make("button", { id: "theme", type: "button" });
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", `${button.textContent} colours`); };
  try { const kept = localStorage.getItem("calque-theme"); if (kept) root.dataset.theme = kept; } catch { /* pages opened from local files may have no storage */ }
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("calque-theme", root.dataset.theme); } catch { /* as above */ }
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();
  document.querySelector(".top").append(button);

  // -- sorting
  const value = (row, column) => {
    const cell = row.cells[column];
    if (column === 0) return cell.textContent.trim();
    const found = cell.dataset.sort;
    return found === undefined || found === "" ? null : Number(found);
  };
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0], rows = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const wrapped = make("button", { type: "button" });
      wrapped.append(...head.childNodes);
      wrapped.firstChild?.after(make("span", { class: "arrow", "aria-hidden": "true" }));
      head.append(wrapped);
      wrapped.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const next = column === 0 ? { null: "ascending", ascending: "descending" }[before] : { null: "descending", descending: "ascending" }[before];
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        let order = rows;
        if (next) {
          head.setAttribute("aria-sort", next);
          const way = next === "ascending" ? 1 : -1;
          order = [...rows].sort((a, b) => {
            const [x, y] = [value(a, column), value(b, column)];
            if (x === null || y === null) return (x === null) - (y === null); // missing scores are last in both orders
            return way * (typeof x === "string" ? x.localeCompare(y) : x - y);
          });
        }
        body.append(...order);
      });
    });
  }

  // -- selection of a plot's view
  for (const figure of all("figure.plot")) {
    const place = figure.querySelector(".choose");
    const panels = all(".panel", figure).map((panel) => ({ panel, choice: JSON.parse(panel.dataset.choice) }));
    if (!place || panels.length < 2) continue;
    const chosen = { ...panels[0].choice };
    const selects = {};
    const show = (changed) => {
      const fits = ({ choice }) => Object.keys(chosen).filter((name) => choice[name] === chosen[name]).length + (choice[changed] === chosen[changed] ? 100 : 0);
      const best = panels.reduce((a, b) => (fits(b) > fits(a) ? b : a));
      Object.assign(chosen, best.choice);
      for (const { panel } of panels) panel.hidden = panel !== best.panel;
      for (const [name, select] of Object.entries(selects)) select.value = chosen[name];
      for (const table of all(":scope > details .scroll", figure)) table.hidden = "language" in chosen && !table.querySelector(`[id^="${CSS.escape(`${figure.id}-${chosen.language}-`)}"]`);
    };
    for (const [name, values] of Object.entries(JSON.parse(place.dataset.choices))) {
      const box = make("label", {}, name), select = make("select");
      for (const each of values) select.append(make("option", { value: each }, each));
      select.addEventListener("change", () => { chosen[name] = select.value; hide(); show(name); });
      selects[name] = select;
      box.append(select);
      place.append(box);
    }
    show("");
  }

  // -- tooltips
  const tip = document.getElementById("tip");
  let lit = [], anchor = null, keyed = false;
  const hide = () => {
    tip.hidden = true;
    anchor = null;
    keyed = false;
    for (const each of lit) each.classList.remove("on");
    for (const each of all(".away")) each.classList.remove("away");
    lit = [];
  };
  const say = (target, lines, source) => {
    tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
    if (source) tip.append(make("small", {}, source.length > 160 ? `${source.slice(0, 160)} …` : source));
    tip.hidden = false;
    anchor = target;
    settle();
  };
  const settle = () => {
    const target = anchor;
    const box = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = box.top - own.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : Math.min(box.bottom + 10, innerHeight - own.height - 8)}px`;
  };
  for (const mark of all(".mark")) {
    const title = mark.querySelector("title");
    if (title) { mark.dataset.tip = title.textContent; title.remove(); }
  }
  const point = (target) => {
    hide();
    if (target.classList.contains("mark")) {
      target.classList.add("on");
      lit = [target];
      say(target, [target.dataset.tip], target.dataset.source);
    } else if (target.dataset.pair !== undefined) {
      const panel = target.closest(".panel"), figure = target.closest("figure");
      lit = all(`[data-pair="${CSS.escape(target.dataset.pair)}"]`, panel);
      for (const svg of all("svg", panel)) svg.classList.add("away");
      for (const each of lit) each.classList.add("on");
      const row = document.getElementById(`${figure.id}-${JSON.parse(panel.dataset.choice).language}-${target.dataset.pair}`);
      const said = row ? [...row.cells].slice(1).map((cell) => cell.textContent) : [];
      say(target, said.length === 4 ? [`${said[0]} – ${said[2]}`, said[1], said[3]] : said);
    } else {
      say(target, [target.dataset.source || target.closest("[data-source]").dataset.source]);
    }
  };
  const pointable = ".mark, circle[data-pair], rect[data-pair], [data-source]";
  let last = "";
  document.addEventListener("pointerover", (event) => {
    const where = `${event.clientX} ${event.clientY}`;
    if (keyed && where === last) return; // the page was scrolled, but the pointer was not moved
    last = where;
    const target = event.target.closest(pointable);
    if (target && target.tagName !== "svg") point(target); else hide();
  });
  // Scrolling hides a tooltip that the pointer opened, but not a tooltip that a key opened.
  document.addEventListener("scroll", () => { if (keyed) settle(); else hide(); }, { passive: true, capture: true });
  for (const drawing of all(".drawing")) {
    let at = -1;
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") { hide(); return; }
      if (!step) return;
      const marks = all(".mark, circle[data-pair]", drawing);
      if (!marks.length) return;
      event.preventDefault();
      at = at < 0 && step < 0 ? marks.length - 1 : (at + step + marks.length) % marks.length;
      point(marks[at]);
      keyed = true;
    });
    drawing.addEventListener("blur", hide);
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // -- mark of the current section in the table of contents
  if ("IntersectionObserver" in window) {
    const links = new Map(all("nav a").map((link) => [link.getAttribute("href").slice(1), link]));
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-10% 0px -80% 0px" });
    for (const section of all("main > section")) watch.observe(section);
  }
})();
