// The timeline of the page: rows at once, their insides when they are opened. Text becomes text nodes, never markup.
"use strict";
(() => {
  const { groups, texts, cuts } = JSON.parse(document.getElementById("timeline-data").textContent);
  const container = document.getElementById("groups");
  const query = document.getElementById("query");
  const hits = document.getElementById("hits");
  const before = document.getElementById("before");
  const after = document.getElementById("after");
  const theme = document.getElementById("theme");
  const SLICE_MS = 12;
  const MOST_HITS = 10000;
  const LONG = 1500;

  const make = (tag, name = "", ...children) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(...children.filter((child) => child !== ""));
    return made;
  };
  const number = (value) => value.toLocaleString("en");
  const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;

  // Makes many elements without holding the page up; `upTo` makes those at once that somebody wants to see.
  const filled = (target, items, build) => {
    let done = 0;
    const slice = (until, deadline) => {
      const part = document.createDocumentFragment();
      while (done < until && performance.now() < deadline) part.append(build(items[done], done++));
      target.append(part);
    };
    const later = () => {
      if (done < items.length) slice(items.length, performance.now() + SLICE_MS);
      if (done < items.length) setTimeout(later);
    };
    later();
    return (at) => slice(Math.min(at + 1, items.length), Infinity);
  };

  // ---- rows

  const leads = (group) => (group.intent ? `${group.intent}${group.to ? ` → ${group.to}` : ""}` : "");
  const sums = (group) =>
    [
      group.tools ? counted(group.tools, "tool") : "",
      group.retries ? counted(group.retries, "format retry").replace("retrys", "retries") : "",
      `${number(group.tokens)} tokens`,
      group.usd,
      `${number(group.seconds)} s`,
    ]
      .filter(Boolean)
      .join(" · ");

  // What a row says: class and text of each piece of its title, its sums, and why it went on as it did.
  const said = (group) => {
    if (group.n === undefined) return [[["", group.title]], "", ""];
    const pieces = [
      ["number", String(group.n)],
      ["name", group.title],
      [`kind ${group.kind}`, group.kind],
      ["leads", leads(group)],
      ["refused", group.red ? `✗ refused: ${group.red} is red` : ""],
    ];
    return [pieces.filter(([, text]) => text), sums(group), group.reason];
  };
  const headText = (group) => {
    const [pieces, figures, why] = said(group);
    return pieces.map(([, text]) => text).join(" ") + figures + why;
  };
  const heading = (group) => {
    const [pieces, figures, why] = said(group);
    const title = make("h3");
    pieces.forEach(([name, text], at) => title.append(at ? " " : "", make("span", name, text)));
    const row = [title];
    if (figures) row.push(make("span", "sums", figures));
    if (why) row.push(make("span", "why", why));
    return row;
  };

  const bodies = new Map();
  const row = (group, at) => {
    const details = make("details", group.red ? "group red" : "group");
    details.id = group.id;
    const summary = make("summary", "", ...heading(group));
    details.append(summary);
    details.addEventListener("toggle", () => details.open && opened(at));
    return details;
  };
  const upToRow = filled(container, groups, row);
  const rowOf = (at) => {
    upToRow(at);
    return container.children[at];
  };

  // The inside of a row, made when it is first opened.
  const opened = (at) => {
    if (bodies.has(at)) return bodies.get(at);
    const group = groups[at];
    const body = make("div", "cards");
    const link = make("a", "quiet", "Link to this part");
    link.href = `#${group.id}`;
    body.append(link);
    if (group.hidden) {
      const note = `${counted(group.hidden, "event")} of a very long run left out here; journal.jsonl has all of them.`;
      body.append(make("p", "note", note));
    }
    const cards = make("div");
    body.append(cards);
    container.children[at].append(body);
    const made = { cards, upTo: filled(cards, group.cards, card) };
    bodies.set(at, made);
    return made;
  };

  const headOf = ([, , , title, facts]) => [title, facts.join(" · ")].filter(Boolean).join(" ");
  const card = (data) => {
    const [id, seconds, tone, title, facts, parts, url] = data;
    const element = make("article", `card ${tone}`);
    element.id = id;
    element.tabIndex = -1;
    const head = make("div", "head", make("h4", "", title));
    if (facts.length) head.append(" ", make("span", "facts", facts.join(" · ")));
    const top = make("div", "top", head);
    if (seconds !== null) {
      const at = make("a", "at", `+${number(seconds)} s`);
      at.href = `#${id}`;
      at.title = `Link to event ${id.slice(1)} of the journal`;
      top.append(at);
    }
    element.append(top, ...parts.map((part) => partOf(part, id)));
    if (url) {
      const link = make("a", "", url);
      link.href = url;
      link.rel = "noreferrer noopener";
      element.append(link);
    }
    return element;
  };

  const partOf = ([label, index, isOpen, isDiff, puts], id) => {
    const details = make("details", "part", make("summary", "", label || "Text"));
    const text = texts[index];
    details.open = Boolean(isOpen);
    const pre = make("pre");
    pre.dir = "auto";
    if (text.length > LONG || text.split("\n", 24).length > 20) {
      pre.tabIndex = 0;
      pre.setAttribute("role", "region");
      pre.setAttribute("aria-label", label || "Text");
    }
    if (isDiff) {
      pre.className = "diff";
      pre.append(...diffLines(text));
    }
    else if (puts && !cuts[index]) pre.append(...marked(text, puts));
    else pre.append(text);
    details.append(pre);
    if (cuts[index]) {
      const where = /^e\d+$/.test(id) ? `; line ${id.slice(1)} of journal.jsonl has all of it` : isDiff ? "" : "; the journal has all of it";
      details.append(make("p", "note", `${counted(cuts[index], "character")} left out here${where}.`));
    }
    return details;
  };

  // Lines of a file may look like a diff's own: what counts is how many of them each hunk has by its first line.
  const diffLines = (text) => {
    let before = 0;
    let after = 0;
    return text.split("\n").map((line) => {
      const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line);
      let name = "quiet";
      if (before > 0 || after > 0) {
        if (line[0] !== "+" && line[0] !== "\\") before--;
        if (line[0] !== "-" && line[0] !== "\\") after--;
        name = { "+": "added", "-": "removed", "\\": "quiet" }[line[0]] || "";
      } else if (hunk) {
        [before, after] = [hunk[1], hunk[2]].map((many) => Number(many ?? 1));
        name = "hunk";
      }
      return make("span", name, `${line}\n`);
    });
  };

  // What was put into a prompt, marked with the name of its variable.
  const marked = (text, puts) => {
    const pieces = [];
    let from = 0;
    for (const [start, end, name] of puts) {
      pieces.push(text.slice(from, start));
      const put = make("span", "put", text.slice(start, end));
      put.title = name;
      pieces.push(put);
      from = end;
    }
    return [...pieces, text.slice(from)].filter((piece) => piece !== "");
  };

  // ---- deep links

  let places = null;
  const targetOf = (id) => {
    if (!places) {
      places = new Map();
      groups.forEach((group, at) => {
        places.set(group.id, [at, -1]);
        group.cards.forEach((each, nth) => places.set(each[0], [at, nth]));
      });
    }
    return places.get(id);
  };

  const shown = (at, nth) => {
    const details = rowOf(at);
    if (nth < 0) return details;
    details.open = true;
    const body = opened(at);
    body.upTo(nth);
    return body.cards.children[nth];
  };

  const follow = () => {
    const target = targetOf(location.hash.slice(1));
    if (!target) return;
    document.querySelectorAll(".here").forEach((each) => each.classList.remove("here"));
    const element = shown(...target);
    if (target[1] < 0) {
      element.open = true;
      // What is not yet there cannot be scrolled to.
      opened(target[0]).upTo(0);
    }
    element.classList.add("here");
    element.scrollIntoView({ block: "start" });
    (target[1] < 0 ? element.firstElementChild : element).focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);
  // The browser goes to a link's place by itself when the page is there, and takes the focus away from it.
  addEventListener("load", () => setTimeout(follow));

  // ---- search

  const fixed = [...document.querySelectorAll("[data-find]")];
  let matches = [];
  let current = -1;
  let searched = "";

  const positions = (text, wanted, most) => {
    const at = [];
    if (most <= 0) return at;
    for (const match of text.matchAll(wanted)) {
      at.push([match.index, match[0].length]);
      if (at.length >= most) break;
    }
    return at;
  };

  const search = (words) => {
    const wanted = new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
    const all = [];
    const left = () => MOST_HITS - all.length;
    // A text stands in many places. What is left only gets less, so what was found of it at first is enough later.
    const known = new Map();
    const inText = (index) => {
      if (!known.has(index)) known.set(index, positions(texts[index], wanted, left()));
      return known.get(index);
    };
    const add = (hit, at) => at.slice(0, left()).forEach(([start, length]) => all.push({ ...hit, start, length }));
    fixed.forEach((element) => add({ element }, positions(element.textContent, wanted, left())));
    for (let at = 0; at < groups.length && left() > 0; at++) {
      const group = groups[at];
      add({ at, nth: -1 }, positions(headText(group), wanted, left()));
      for (let nth = 0; nth < group.cards.length && left() > 0; nth++) {
        const each = group.cards[nth];
        add({ at, nth, part: -1 }, positions(headOf(each), wanted, left()));
        each[5].forEach((part, which) => left() > 0 && add({ at, nth, part: which }, inText(part[1])));
      }
    }
    return all;
  };

  // The range of a hit in the page, made visible on the way.
  const rangeOf = (hit) => {
    let element = hit.element;
    if (!element) {
      element = shown(hit.at, hit.nth);
      if (hit.nth < 0) element = element.firstElementChild;
      else if (hit.part < 0) element = element.querySelector(".top > .head");
      else {
        const part = element.querySelectorAll(":scope > details")[hit.part];
        part.open = true;
        element = part.querySelector("pre");
      }
    }
    for (let outer = element.parentElement; outer; outer = outer.parentElement) {
      if (outer.tagName === "DETAILS" && !(hit.nth < 0 && outer.classList.contains("group"))) outer.open = true;
    }
    const range = document.createRange();
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    let passed = 0;
    let begun = false;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const end = passed + node.length;
      if (!begun && hit.start < end) {
        range.setStart(node, hit.start - passed);
        begun = true;
      }
      if (begun && hit.start + hit.length <= end) {
        range.setEnd(node, hit.start + hit.length - passed);
        break;
      }
      passed = end;
    }
    return range;
  };

  const highlight = (range) => {
    if (globalThis.CSS && CSS.highlights) CSS.highlights.set("current", new Highlight(range));
    else getSelection().setBaseAndExtent(range.startContainer, range.startOffset, range.endContainer, range.endOffset);
  };

  const reveal = (range) => {
    const element = range.startContainer.parentElement;
    element.closest(".card, .group, [data-find]")?.scrollIntoView({ block: "nearest" });
    const box = element.closest("pre");
    if (box) box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
    scrollBy(0, range.getBoundingClientRect().top - innerHeight / 2);
  };

  const go = (step) => {
    if (!matches.length) return;
    current = (current + step + matches.length) % matches.length;
    const range = rangeOf(matches[current]);
    highlight(range);
    reveal(range);
    // What was skipped until now has its true height only in the next frame.
    requestAnimationFrame(() => reveal(range));
    tell();
  };

  const tell = () => {
    const many = matches.length >= MOST_HITS ? `${number(MOST_HITS)}+` : number(matches.length);
    hits.textContent = !searched ? "" : !matches.length ? "nothing found" : `${number(current + 1)} of ${many}`;
    before.disabled = after.disabled = !matches.length;
  };

  // Whether there was something new to search for; the page is at its first hit then.
  const ask = () => {
    if (query.value === searched) return false;
    searched = query.value;
    matches = searched.trim() ? search(searched) : [];
    current = -1;
    if (globalThis.CSS && CSS.highlights) CSS.highlights.clear();
    if (matches.length) go(1);
    else tell();
    return true;
  };
  let waiting = 0;
  query.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(ask, 150);
  });
  query.addEventListener("keydown", (event) => {
    if (event.key === "Escape") query.value = "";
    if (event.key === "Enter" || event.key === "Escape") {
      clearTimeout(waiting);
      if (!ask() && event.key === "Enter") go(event.shiftKey ? -1 : 1);
    }
  });
  before.addEventListener("click", () => go(-1));
  after.addEventListener("click", () => go(1));

  // ---- keyboard

  const neighbor = (step) => {
    const row = document.activeElement.closest(".group");
    const next = row ? (step > 0 ? row.nextElementSibling : row.previousElementSibling) : container.firstElementChild;
    next?.firstElementChild.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    if (event.key === "/") {
      event.preventDefault();
      query.focus();
      query.select();
    } else if ((event.key === "j" || event.key === "k") && event.target.closest("#timeline")) neighbor(event.key === "j" ? 1 : -1);
  });

  // ---- light and dark

  const THEMES = ["auto", "light", "dark"];
  const KEY = "stepflow-theme";
  const remembered = () => {
    try {
      return localStorage.getItem(KEY) || "auto";
    } catch {
      return "auto";
    }
  };
  const dress = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
    try {
      localStorage.setItem(KEY, name);
    } catch {
      // A page opened from a disk may have no storage; the choice then lasts as long as the page.
    }
  };
  theme.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "auto";
    dress(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  });
  dress(THEMES.includes(remembered()) ? remembered() : "auto");

  follow();
  document.documentElement.dataset.ready = "yes";
})();
