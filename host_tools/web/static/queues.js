"use strict";
// A queue pair at the step that is shown and at the end of the log: its states and how it came there.

// Where the states stand; one that is not named here comes in a row below.
const PLACES = {RST: [45, 36], INIT: [155, 36], RTR: [265, 36], RTS: [375, 36],
  ERR: [155, 118], SQER: [265, 118], SQD: [375, 118]};
const BOX = [76, 28];
const PAUSE = 300;       // milliseconds that are left to other requests while a long log is read

class Queues {
  constructor() {
    $("pair").onchange = () => { this.wanted = JSON.parse($("pair").value); this.ask(); };
    $("queue").ontoggle = () => this.ask();
  }

  // The queue pair of the activity, unless the reader has chosen another one for it.
  show(number, activity) {
    this.number = number;
    if (activity.pairs.length && this.activity !== activity.number) this.wanted = activity.pairs[0];
    this.activity = activity.number;
    this.ask();
  }

  // A long log is read for some time, as far as it goes now; what is known is drawn meanwhile.
  async ask() {
    const asked = this.asked = {};
    let found, end;
    do {
      if (!$("queue").open) return;
      try { found = await source.queues(this.number, this.wanted); }
      catch (error) { if (asked === this.asked) $("paired").textContent = error.message; return; }
      if (asked !== this.asked) return;
      this.draw(found);
      end ??= found.end;
      if (found.done || found.then && found.read >= end) return;
      while (asked === this.asked) {
        await new Promise(later => setTimeout(later, PAUSE));
        if (!this.busy?.()) break;  // a search comes first
      }
    } while (asked === this.asked);
  }

  draw(found) {
    $("queue").hidden = !found.pair;
    if (!found.pair) return;
    const name = pair => `${pair[0]} ${hex(pair[1])}`, chosen = JSON.stringify(found.pair);
    const all = new Map([found.pair, ...found.pairs].map(pair => [JSON.stringify(pair), name(pair)]));
    if (this.offered !== [...all.keys()].join()) $("pair").replaceChildren(...[...all].sort((one, other) => one[1] < other[1] ? -1 : 1)
      .map(([value, text]) => new Option(text, value)));
    this.offered = [...all.keys()].join();  // a list that is open stays so
    $("pair").value = chosen;
    const {now, then} = found, words = [];
    if (!then) words.push(`reading the log: event ${found.read} of ${found.end}`);
    else if (!then.state) words.push("the log has not said its state up to here");
    else words.push(`${then.state} since event ${then.event}`);
    const until = found.done ? "at the end of the log" : `at event ${found.read}`;
    words.push(now.state ? `${until} ${now.state} since event ${now.event}` : `${until} not known`);
    if ($("paired").textContent !== words.join("; ")) $("paired").textContent = words.join("; ");
    $("states").replaceChildren(this.picture(found, name(found.pair), words));
    this.rings(then?.rings ?? [], now.rings, until);
  }

  // The indices of each ring, then and now.
  rings(then, now, until) {
    const head = el("tr"), names = [...new Set([...then, ...now].map(each => each.name))];
    for (const text of ["ring", "at this step", until]) head.append(el("th", text));
    for (const cell of head.cells) cell.scope = "col";
    $("rings").replaceChildren(...(names.length ? [head] : []), ...names.map(name => {
      const row = el("tr"), first = el("th", name);
      first.scope = "row";
      const [before, after] = [then, now].map(rings => rings.find(each => each.name === name));
      const slots = (after ?? before).slots;
      if (slots) first.append(el("span", `${slots} slots`, "slots"));
      row.append(first, this.ring(before), this.ring(after));
      return row;
    }));
  }

  ring(ring) {
    const cell = el("td");
    if (!ring) { cell.textContent = "not there"; return cell; }
    const {slots, producer, consumer} = ring, said = index => index ?? "not known";
    if (slots && producer !== null && consumer !== null) cell.append(circle(slots, consumer, producer));
    cell.append(el("span", `producer ${said(producer)}`), el("span", `consumer ${said(consumer)}`));
    return cell;
  }

  picture({states, edges, then, now}, name, words) {
    const made = svg("svg", {viewBox: "0 0 420 160", role: "img", "aria-labelledby": "states-words"});
    const before = new Map((then?.taken ?? []).map(([from, to, event]) => [`${from} ${to}`, event]));
    const after = new Map(now.taken.map(([from, to, event]) => [`${from} ${to}`, event]));
    const told = [...before].map(([way, event]) => `${way.replace(" ", " to ")} at event ${event}`);
    made.append(svg("title", {id: "states-words"}, `states of queue pair ${name}: ${words.join("; ")}; ${told.join(", ")}`));
    const places = {...PLACES};
    states.filter(state => !(state in places)).forEach((state, i) => { places[state] = [45 + 110 * i, 150]; });
    const lines = [];
    for (const [from, to] of edges) {
      const way = `${from} ${to}`, kind = before.has(way) ? "taken" : after.has(way) ? "later" : "";
      if (to === states[0] && from !== "ERR" && !kind) continue;  // it is allowed from everywhere
      lines.push([kind, this.edge(places[from], places[to], kind)]);
    }
    lines.sort(([one], [other]) => one.length - other.length);
    made.append(...lines.flatMap(([, line]) => line));
    for (const state of states) {
      const [x, y] = places[state], here = then?.state === state, end = now.state === state;
      made.append(svg("rect", {x: x - BOX[0] / 2, y: y - BOX[1] / 2, width: BOX[0], height: BOX[1], rx: 5,
        class: `state${here ? " here" : ""}${end ? " end" : ""}`}),
      svg("text", {x, y: y + 5, "text-anchor": "middle"}, state));
    }
    return made;
  }

  // A line with an arrow's head, beside that of the other direction; to RST around the others.
  edge([x1, y1], [x2, y2], kind) {
    const far = Math.hypot(x2 - x1, y2 - y1), dx = (x2 - x1) / far, dy = (y2 - y1) / far;
    const border = Math.min(dx ? BOX[0] / 2 / Math.abs(dx) : far, dy ? BOX[1] / 2 / Math.abs(dy) : far) + 1;
    const side = dx < 0 || (!dx && dy < 0) ? 5 : -5, px = -dy * side * Math.sign(dx || dy), py = dx * side * Math.sign(dx || dy);
    const round = Math.abs(x2 - x1) > 120 && y1 === y2 ? (y1 < 80 ? -34 : 34) : 0;
    const a = [x1 + dx * border + px, y1 + dy * border + py], b = [x2 - dx * border + px, y2 - dy * border + py];
    if (round) { a[0] = x1; b[0] = x2; a[1] = y1 + Math.sign(round) * BOX[1] / 2; b[1] = y2 + Math.sign(round) * (BOX[1] / 2 + 1); }
    const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2 + round];
    const line = svg("path", {class: `way ${kind}`, d: `M${a}Q${middle} ${b}`});
    const angle = Math.atan2(b[1] - middle[1], b[0] - middle[0]);
    const wing = turn => [b[0] - 8 * Math.cos(angle + turn), b[1] - 8 * Math.sin(angle + turn)];
    return [line, svg("path", {class: `head ${kind}`, d: `M${b}L${wing(0.4)}L${wing(-0.4)}Z`})];
  }
}

// A ring: the part from consumer to producer is full; slot 0 is at the top.
function circle(slots, consumer, producer) {
  const made = svg("svg", {viewBox: "0 0 36 36", "aria-hidden": "true"});
  const full = Math.min(1, (((producer - consumer) % 65536 + 65536) % 65536) / slots), from = consumer % slots / slots;
  const at = (turn, radius) => [18 + radius * Math.sin(2 * Math.PI * turn), 18 - radius * Math.cos(2 * Math.PI * turn)];
  made.append(svg("circle", {cx: 18, cy: 18, r: 13, class: "round"}));
  if (full) made.append(svg("circle", {cx: 18, cy: 18, r: 13, class: "full", pathLength: 100,
    "stroke-dasharray": `${100 * full} 100`, transform: `rotate(${360 * from - 90} 18 18)`}));
  made.append(svg("path", {class: "index", d: `M${at(from, 8)}L${at(from, 18)}`}));
  return made;
}

const hex = number => `0x${number.toString(16)}`;
