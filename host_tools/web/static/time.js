"use strict";
// The axis of time: a lane for each machine, the wire, and what went wrong. It is zoomed, dragged, and used by keys.

const LANE = 13, AXIS = 16, SETTLED = 150;
const COLOURS = ["a", "b"];  // of the machines' lanes

class TimeAxis {
  constructor(log, go) {
    this.begin = log.begin;
    this.end = Math.max(log.seconds, log.begin + 1e-6);
    this.go = go;
    this.view = [this.begin, this.end];
    this.shown = [0, 0];   // the events that the list has
    this.moments = [];
    this.at = 0;           // the part that keys have chosen
    this.step = undefined; // when the step that is shown happened
    this.strip = $("overview");
    this.buttons();
    this.pointer();
    this.keys();
    addEventListener("resize", () => this.draw());
    source.moments().then(found => { this.moments = found; this.draw(); }, () => {});
    this.ask();
  }

  buttons() {
    for (const [id, action] of [["closer", () => this.zoom(0.5)], ["wider", () => this.zoom(2)], ["whole", () => this.look(this.begin, this.end)]])
      $(id).onclick = action;
  }

  // Show a time, as far as the log goes.
  look(since, until) {
    const span = Math.min(Math.max(until - since, 1e-6), this.end - this.begin);
    const from = Math.min(Math.max(since, this.begin), this.end - span);
    this.view = [from, from + span];
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), SETTLED);
  }

  zoom(by, around) {
    const [since, until] = this.view, middle = around ?? this.time(this.at + 0.5);
    this.look(middle - (middle - since) * by, middle + (until - middle) * by);
  }

  async ask() {
    const view = this.view;
    let found;
    try { found = await source.timeline(...view); } catch { return; }  // the state line tells that the server has gone
    if (view !== this.view) return;
    this.data = found;
    this.draw();
  }

  get parts() { return Object.values(this.data.lanes)[0].length; }

  time(part) { return this.data.since + (this.data.until - this.data.since) * part / this.parts; }

  draw() {
    if (!this.data) return;
    const wide = Math.max(200, this.strip.clientWidth), lanes = Object.entries(this.data.lanes);
    const high = LANE * (lanes.length + 1) + AXIS, [since, until] = this.view;
    const x = when => 44 + (wide - 44) * (when - since) / (until - since);
    const picture = svg("svg", {viewBox: `0 0 ${wide} ${high}`, height: high, "aria-hidden": "true"});
    const most = Math.max(1, ...lanes.flatMap(([, parts]) => parts.map(part => part[1])));
    const columns = svg("g", {}), front = svg("g", {});
    for (let i = 0; i < this.parts; i++) {
      const left = Math.max(44, x(this.time(i))), right = x(this.time(i + 1));
      if (right <= 44 || left > wide) continue;
      const here = lanes.map(([, parts]) => parts[i]).filter(part => part[1]);
      const count = here.reduce((sum, part) => sum + part[1], 0), first = Math.min(...here.map(part => part[0]));
      const column = svg("rect", {x: left, y: 0, width: Math.max(0.5, right - left), height: high - AXIS, class: "part",
        "data-part": i, "data-first": count ? first : "", "data-count": count});
      column.classList.toggle("gap", !count);
      column.classList.toggle("here", count > 0 && first + count > this.shown[0] && first < this.shown[1]);
      column.classList.toggle("at", i === this.at);
      column.append(svg("title", {}, this.words(i)));
      columns.append(column);
      lanes.forEach(([, parts], lane) => {
        const tall = parts[i][1] && 2 + (LANE - 3) * Math.log1p(parts[i][1]) / Math.log1p(most);
        if (tall) front.append(svg("rect", {x: left, y: LANE * (lane + 1) - tall, width: Math.max(0.5, right - left - 0.6),
          height: tall, class: `bar-${COLOURS[lane] ?? "other"}`}));
      });
    }
    picture.append(columns, front);
    for (const each of this.moments) {
      if (each.at < since || each.at > until) continue;
      const mark = svg("rect", {x: x(each.at) - 1, y: LANE * lanes.length + 1, width: 3, height: LANE - 2,
        class: each.kind === "fault" || /\bdown\b/.test(each.text) ? "moment wrong" : "moment", "data-number": each.number});
      mark.append(svg("title", {}, `event ${each.number}, ${each.of}: ${each.text || each.kind}`));
      picture.append(mark);
    }
    if (this.step >= since && this.step <= until)
      picture.append(svg("rect", {x: x(this.step) - 1, y: 0, width: 3, height: high - AXIS, class: "step"}));
    [...lanes.map(([name]) => name), "faults"].forEach((name, lane) =>
      picture.append(svg("text", {x: 0, y: LANE * (lane + 1) - 2}, name)));
    for (const [when, label] of ticks(since, until, Math.max(2, wide / 110)))
      picture.append(svg("text", {x: x(when), y: high - 3, class: "tick"}, label), svg("rect", {x: x(when), y: high - AXIS, width: 1, height: 4}));
    this.strip.replaceChildren(picture);
    this.say();
  }

  words(i) {
    const lanes = Object.entries(this.data.lanes).map(([name, parts]) => [name, parts[i]]).filter(([, part]) => part[1]);
    if (!lanes.length) return `a gap: no events from ${this.time(i).toFixed(6)} s on`;
    const count = lanes.reduce((sum, [, part]) => sum + part[1], 0), first = Math.min(...lanes.map(([, part]) => part[0]));
    const each = lanes.map(([name, part]) => `${name} ${part[1]}`).join(", ");
    return `${this.data.exact ? "" : "about "}${count} events from event ${first} on, ${this.time(i).toFixed(6)} s: ${each}`;
  }

  // The events that the list shows are marked.
  here(first, end) {
    this.shown = [first, end];
    this.draw();
  }

  // The time of the step that is shown is marked.
  mark(when) {
    this.step = when;
    this.draw();
  }

  // The next part in a direction that is no gap, else the same one.
  busy(from, way) {
    const lanes = Object.values(this.data.lanes);
    for (let i = from + way; i >= 0 && i < this.parts; i += way) if (lanes.some(parts => parts[i][1])) return i;
    return from;
  }

  goTo(part) {
    const column = this.strip.querySelector(`[data-part="${part}"]`);
    if (column?.dataset.first) this.go(Number(column.dataset.first));
  }

  pointer() {
    let from, moved;
    this.strip.onwheel = event => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.under(event));
    };
    this.strip.onpointerdown = event => { from = [event.clientX, this.view]; moved = false; };
    addEventListener("pointermove", event => {
      if (!from) return;
      const pixels = event.clientX - from[0], [since, until] = from[1];
      moved ||= Math.abs(pixels) > 4;
      if (!moved) return;
      const by = pixels / Math.max(1, this.strip.clientWidth - 44) * (until - since);
      this.look(since - by, until - by);
    });
    addEventListener("pointerup", () => { from = undefined; });
    addEventListener("pointercancel", () => { from = undefined; });
    this.strip.onclick = event => {
      const number = event.target.dataset?.number;
      if (moved || !this.data) return;
      if (number !== undefined) { this.go(Number(number)); return; }
      this.at = Math.max(0, Math.min(this.parts - 1,
        Math.floor((this.under(event) - this.data.since) / (this.data.until - this.data.since) * this.parts)));
      this.draw();
      this.goTo(this.at);
    };
  }

  under(event) {
    const box = this.strip.getBoundingClientRect(), [since, until] = this.view;
    return since + (until - since) * Math.max(0, event.clientX - box.left - 44) / Math.max(1, box.width - 44);
  }

  // A slider: arrows choose a part, + and - zoom around it, Page keys drag, Enter goes to its first event.
  keys() {
    this.strip.tabIndex = 0;
    this.strip.setAttribute("role", "slider");
    this.strip.setAttribute("aria-valuemin", 0);
    this.strip.onkeydown = event => {
      if (!this.data || event.ctrlKey || event.altKey || event.metaKey) return;
      const last = this.parts - 1, [since, until] = this.view, half = (until - since) / 2;
      const to = {ArrowRight: this.busy(this.at, 1), ArrowLeft: this.busy(this.at, -1), Home: 0, End: last}[event.key];
      if (event.key === "Enter") this.goTo(this.at);
      else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 0.5 : 2);
      else if (event.key === "PageDown") this.look(since + half, until + half);
      else if (event.key === "PageUp") this.look(since - half, until - half);
      else if (to !== undefined) { this.at = Math.min(Math.max(0, to), last); this.draw(); }
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
  }

  say() {
    this.strip.setAttribute("aria-valuemax", this.parts - 1);
    this.strip.setAttribute("aria-valuenow", this.at);
    this.strip.setAttribute("aria-valuetext", this.words(this.at));
  }
}

// Round times with their labels, so many that they do not touch.
function ticks(since, until, most) {
  const rough = (until - since) / most, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(each => each * size).find(each => each >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), found = [];
  for (let when = Math.ceil(since / step) * step; when <= until; when += step) found.push([when, `${when.toFixed(digits)} s`]);
  return found;
}
