"use strict";
// The steps of one activity: as a list, and one after the other in the drawing.

class Player {
  constructor(drawing) {
    this.drawing = drawing;
    this.steps = [];
    this.at = -1;
    this.queues = new Queues();
    $("back").onclick = () => { this.pause(); this.go(this.at - 1); };
    $("on").onclick = () => { this.pause(); this.go(this.at + 1); };
    $("run").onclick = () => this.timer ? this.pause() : this.play();
    $("whole-steps").onchange = () => $("steps").classList.toggle("whole", $("whole-steps").checked);
    $("zeros").onchange = () => $("named").classList.toggle("all", $("zeros").checked);
    this.buttons();
  }

  async choose(number, play) {
    this.pause();
    const wanted = this.wanted = number;
    let chosen;
    try { chosen = await source.activity(number); }
    catch (error) { $("step").textContent = error.message; return; }
    if (this.wanted !== wanted || !chosen) return;
    this.chosen = chosen;
    this.wanted = chosen.number;  // a link may name any event of it
    this.steps = chosen.list;
    this.at = -1;
    $("chosen").textContent = `${chosen.title}${chosen.status ? ": " + chosen.status : ""}`;
    $("chosen").className = chosen.failed ? "bad" : "";
    $("notes").replaceChildren(...chosen.notes.map(note => el("p", note)));
    this.list();
    if (play && !scrolls()) $("play").scrollIntoView();
    this.go(0, !play);
    if (play) this.play();
  }

  list() {
    const head = el("tr"), modelled = this.steps.some(step => "modelled" in step);
    for (const name of ["event", "µs", ...(modelled ? ["modelled µs"] : []), "of", "step"]) head.append(el("th", name));
    const end = Math.max(0.1, ...this.steps.map(step => step.us));
    $("steps").replaceChildren(head, ...this.steps.map((step, i) => {
      const row = el("tr"), time = el("td", step.us.toFixed(1), "time"), words = el("td");
      const bar = el("div", undefined, "bar"), mark = el("i");
      mark.style.left = `calc(${100 * step.us / end}% - ${5 * step.us / end}px)`;
      bar.append(mark);
      bar.setAttribute("aria-hidden", "true");
      time.append(bar);
      words.style.paddingLeft = 6 + 14 * Math.min(step.depth, 12) + "px";
      words.append(el("div", `${step.type}${step.length ? `, ${step.length} bytes` : ""}${step.address ? ` at ${step.address}` : ""}: ${step.what}`));
      if (step.decoded && step.decoded !== step.what) words.append(el("div", step.decoded, "more"));
      if (step.data) words.append(el("div", step.data.replace(/../g, "$& "), "data more"));
      if (step.kept) words.append(el("div", step.kept, "kept more"));
      row.append(el("td", step.number), time);
      if (modelled) row.append(el("td", step.modelled === undefined ? "-" : step.modelled.toFixed(3)));
      row.append(el("td", step.device, hosts()[0] === hostOf(step.device) ? "a" : "b"), words);
      row.tabIndex = -1;
      row.onclick = () => { this.pause(); this.go(i); };
      return row;
    }));
  }

  // Show a step; `still` where the page must not move.
  go(place, still) {
    if (place < 0 || place >= this.steps.length) return;
    const rows = $("steps").rows;
    for (const row of rows) row.classList.remove("now");
    this.at = place;
    const step = this.steps[place], row = rows[place + 1];
    row.classList.add("now");
    theAxis?.mark(this.chosen.at + step.us / 1e6);
    $("place").textContent = `step ${place + 1} of ${this.steps.length}`;
    const said = step.decoded || step.what;
    $("step").replaceChildren(el("span", `${place + 1}. ${wayWords(step)}: ${step.caption || said}`),
      el("span", `${step.caption ? said : ""}${step.kept ? ` (${step.kept})` : ""}`, "exact"));
    if (!still) this.reveal(row);  // now that the words above have the height that they keep
    this.drawing.show(step.way);
    this.fields(step);
    this.queues.show(step.number, this.chosen);
    this.buttons();
  }

  // Bring the step's row below the controls, which stay: within #play, or in the page where #play does not scroll.
  reveal(row) {
    const inside = scrolls(), now = $("now").getBoundingClientRect();
    const top = inside ? $("play").getBoundingClientRect().top + now.height : now.height;
    const bottom = inside ? $("play").getBoundingClientRect().bottom : innerHeight, box = row.getBoundingClientRect();
    const by = box.top < top ? box.top - top : Math.max(0, Math.min(box.bottom - bottom, box.top - top));
    (inside ? $("play") : window).scrollBy(0, by);
  }

  // The bytes of a step by the names of the register reference.
  async fields(step) {
    let found = [];
    try { found = await source.fields(step.number); } catch { /* the log has gone: the words of the step stay */ }
    if (this.steps[this.at] !== step) return;
    $("named").hidden = !found.length;
    $("fields").replaceChildren(...found.map(each => {
      const row = el("tr", undefined, each.value === "0" ? "zero" : ""), name = el("td"), link = el("a", each.name);
      link.href = each.link;
      link.target = "_blank";
      name.append(link);
      row.append(el("td", each.offset, "r"), name, el("td", each.value), el("td", each.meaning));
      return row;
    }));
  }

  play() {
    if (!this.steps.length) return;
    if (this.at >= this.steps.length - 1) this.go(0);
    const next = () => {
      if (this.at >= this.steps.length - 1) { this.pause(); return; }
      this.go(this.at + 1);
      this.timer = setTimeout(next, Number($("speed").value));
    };
    this.timer = setTimeout(next, Number($("speed").value));
    this.buttons();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.buttons();
  }

  buttons() {
    $("run").textContent = this.timer ? "❚❚ Pause" : "▶ Play";
    $("run").disabled = this.steps.length === 0;
    $("back").disabled = this.at <= 0;
    $("on").disabled = this.at >= this.steps.length - 1;
  }
}

// Whether the steps scroll in a part of the page, as on a wide screen; else the page does.
const scrolls = () => getComputedStyle($("play")).overflowY === "auto";

// The way of a step in words, for those who do not see the drawing.
function wayWords(step) {
  const name = place => place.endsWith(":cpu") ? `processor of ${place.slice(0, -4)}`
    : place.endsWith(":memory") ? `memory of ${place.slice(0, -7)}` : place;
  const way = step.way.filter(place => !place.endsWith(":port") && place !== "wire").map(name);
  if (step.way.length > 2 && step.way[0] === step.way.at(-1)) return `${way[0]} reads ${way[(way.length - 1) / 2]}`;
  return way.length > 1 ? `${way[0]} to ${way.at(-1)}` : way[0] ?? step.device;
}
