"use strict";
// The picture of the lab: hosts, functions, the wire; what is lit is where a step goes.

const STACKED = 600;  // pixels of width below which the hosts stand one above the other
const DOT = 7;
const SVG = "http://www.w3.org/2000/svg";

function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

class Drawing {
  constructor(lab) {
    this.lab = lab;
    this.states = [];
    this.way = [];
    this.build();
  }

  // Put the picture into a part of the page; it is drawn anew where its width asks for the other form.
  into(place) {
    const fit = () => {
      if (this.stacked !== place.clientWidth < STACKED) this.build(!this.stacked);
      if (this.picture.parentNode !== place) place.replaceChildren(this.picture);
    };
    fit();
    addEventListener("resize", fit);
  }

  // Two hosts side by side, or, where letters would be too small, one above the other.
  build(stacked = false) {
    const lab = this.lab;
    this.stacked = stacked;
    this.centers = {};   // of places, by name
    this.boxes = {};
    this.edges = {};     // by "from|to", both ways
    this.rates = {};     // texts below functions
    const hosts = Object.entries(lab.hosts);
    const most = Math.max(1, ...hosts.map(([, functions]) => functions.length));
    this.high = Math.max(210, 40 + most * 100);
    const size = stacked ? `0 0 374 ${2 * this.high + 24}` : `0 0 900 ${this.high + 4}`;
    this.picture = svg("svg", {viewBox: size, role: "img", "aria-labelledby": "picture-words"});
    this.picture.append(svg("title", {id: "picture-words"}, this.words(hosts)));
    this.lines = svg("g", {});
    this.front = svg("g", {});
    this.names = svg("g", {});
    hosts.slice(0, 2).forEach(([host, functions], side) => this.host(host, functions, side));
    this.wires();
    this.dot = svg("circle", {r: DOT, class: "dot", visibility: "hidden"});
    this.picture.append(this.lines, this.front, this.dot, this.names);
    this.ports(this.states);
    this.show(this.way);
  }

  words(hosts) {
    const each = hosts.map(([host, functions]) => `host ${host}: processor, memory, root port, `
      + functions.map(f => `${f.title} ${f.name}`).join(", "));
    return each.join("; ") + (hosts.length > 1 ? "; a wire between them" : "");
  }

  host(host, functions, side) {
    const mirrored = side && !this.stacked, top = this.stacked ? side * (this.high + 20) : 0;
    const x = inner => mirrored ? 900 - inner : inner;
    this.picture.append(svg("rect", {x: mirrored ? 530 : 4, y: top + 4, width: 366, height: this.high - 6, rx: 8, class: "host"}),
      svg("text", {x: x(16), y: top + 24, "text-anchor": mirrored ? "end" : "start", class: side ? "b" : "a"}, `host ${host}`));
    const middle = top + this.high / 2 + 8;
    this.box(`${host}:cpu`, x(66), middle - 46, 96, "processor");
    this.box(`${host}:memory`, x(66), middle + 46, 96, "memory");
    this.box(`${host}:port`, x(180), middle, 78, "root port");
    this.edge(`${host}:cpu`, `${host}:port`);
    this.edge(`${host}:memory`, `${host}:port`);
    const step = (this.high - 40) / Math.max(1, functions.length);
    functions.forEach((each, i) => {
      this.box(each.name, x(302), top + 34 + step * (i + 0.5) - 22, 112, each.title);
      const [cx, cy] = this.centers[each.name];
      this.rates[each.name] = [34, 47, 60].map(down =>
        svg("text", {x: cx, y: cy + down, "text-anchor": "middle", class: "dim"}));
      this.names.append(...this.rates[each.name]);
      this.edge(`${host}:port`, each.name);
    });
  }

  box(name, cx, cy, width, title) {
    this.centers[name] = [cx, cy];
    const box = svg("rect", {x: cx - width / 2, y: cy - 22, width, height: 44, rx: 5, class: "box"});
    this.boxes[name] = box;
    const own = title !== "processor" && title !== "memory" && title !== "root port";
    this.front.append(box);
    this.names.append(svg("text", {x: cx, y: own ? cy - 2 : cy + 4, "text-anchor": "middle", class: "name"}, own ? name : title));
    if (own) this.names.append(svg("text", {x: cx, y: cy + 14, "text-anchor": "middle", class: "dim name"}, title));
  }

  edge(from, to) {
    const [x1, y1] = this.centers[from], [x2, y2] = this.centers[to];
    const line = svg("path", {d: `M${x1} ${y1}L${x2} ${y2}`, class: "edge"});
    this.lines.append(line);
    this.edges[`${from}|${to}`] = this.edges[`${to}|${from}`] = line;
    return line;
  }

  wires() {
    this.cables = {};
    for (const [one, other] of Object.entries(this.lab.peers)) {
      if (one > other || !(one in this.centers) || !(other in this.centers)) continue;
      const line = this.edge(one, other);
      this.cables[one] = this.cables[other] = line;
    }
  }

  // Light the way of a step and send a dot along it.
  show(way) {
    this.way = way;
    for (const lit of this.picture.querySelectorAll(".lit")) lit.classList.remove("lit");
    const passed = [];
    let before = null;
    for (const name of way) {
      if (!(name in this.centers)) continue;
      this.boxes[name].classList.add("lit");
      if (before !== null) this.edges[`${before}|${name}`]?.classList.add("lit");
      before = name;
      passed.push(name);
    }
    this.move(passed.length > 1 ? passed.slice(1).flatMap((name, i) => [this.border(passed[i], name), this.border(name, passed[i])])
      : passed.map(name => this.border(name, `${name.split(":")[0]}:port`)));
  }

  // Where a dot on the line from a place to another touches its box: it stays off the names.
  border(from, to) {
    const [x, y] = this.centers[from], [tx, ty] = this.centers[to] ?? [x, y + 1], box = this.boxes[from];
    const dx = tx - x, dy = ty - y, wide = box.width.baseVal.value / 2, high = box.height.baseVal.value / 2;
    const part = Math.min(dx ? wide / Math.abs(dx) : 1, dy ? high / Math.abs(dy) : 1);
    const out = part + DOT / Math.hypot(dx, dy);
    return [x + dx * out, y + dy * out];
  }

  move(stops) {
    cancelAnimationFrame(this.frame);
    this.dot.setAttribute("visibility", stops.length ? "visible" : "hidden");
    if (!stops.length) return;
    const put = ([x, y]) => { this.dot.setAttribute("cx", x); this.dot.setAttribute("cy", y); };
    const legs = stops.length - 1;
    put(stops[legs]);
    if (!legs || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const begin = performance.now();
    const draw = now => {
      const at = Math.min(legs, Math.max(0, (now - begin) / 300));
      const leg = Math.min(legs - 1, Math.floor(at)), part = at - leg;
      put([0, 1].map(i => stops[leg][i] + part * (stops[leg + 1][i] - stops[leg][i])));
      if (at < legs) this.frame = requestAnimationFrame(draw);
    };
    this.frame = requestAnimationFrame(draw);
  }

  // Rates by device and direction; ports of a function are added up.
  counters(rates) {
    if (!this.lab.running && !Object.keys(rates).length && !this.counted) return;
    this.counted = true;
    for (const [name, [first, second, third]] of Object.entries(this.rates)) {
      const sum = {down: [0, 0], read: [0, 0], up: [0, 0], wire: [0, 0]};
      for (const [device, ways] of Object.entries(rates)) {
        if (device.split("/")[0] !== name) continue;
        for (const [way, [count, bytes]] of Object.entries(ways)) { sum[way][0] += count; sum[way][1] += bytes; }
      }
      const text = ([count, bytes], word) => `${word} ${short(count)}/s ${short(bytes)}B/s`;
      const toHost = [sum.read[0] + sum.up[0], sum.read[1] + sum.up[1]];
      first.textContent = text(sum.down, "from host");
      second.textContent = text(toHost, "to host");
      third.textContent = sum.wire[0] ? text(sum.wire, "wire") : "";
    }
  }

  ports(states) {
    this.states = states;
    const broken = new Set(), out = new Set();
    for (const each of states) {
      const name = each.port.split("/")[0];
      if (each.failed) broken.add(name);
      if (!each.cable) { out.add(name); if (this.lab.peers[name]) out.add(this.lab.peers[name]); }
    }
    for (const [name, box] of Object.entries(this.boxes)) box.classList.toggle("broken", broken.has(name));
    for (const [name, line] of Object.entries(this.cables)) line.classList.toggle("out", out.has(name));
  }
}

function short(value) {
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]])
    if (value >= size) return (value / size).toFixed(value < 10 * size ? 1 : 0) + unit;
  return `${value} `.trimEnd() + (value < 1000 ? " " : "");
}
