"use strict";
// The list of activities: a bounded number of rows in memory, those in sight in the page.

const ROW = 21;
const MOST_ROWS = 2000;
const PAGE = 200;        // the most rows that the server gives at once
const COLUMNS = [
  ["event", row => row.number, "r"], ["s", row => row.at.toFixed(6), "r"], ["of", row => row.device],
  ["kind", row => row.kind], ["activity", row => row.title], ["steps", row => row.steps, "r"],
  ["µs", row => row.us.toFixed(1), "r"], ["status", row => row.status],
];
const KINDS = ["work request", "command", "register access", "config access", "DMA", "interrupt", "store",
  "descriptor", "doorbell", "reset", "link", "fault", "control", "note"];

class List {
  constructor(player, log) {
    this.player = player;
    this.rows = [];
    this.lines = [];     // what the list shows: rows, and folds of routine ones
    this.unfolded = new Set();  // folds that were opened, by the number of their first row
    this.first = 0;      // where the rows begin and end, as numbers of events
    this.end = 0;
    this.log = log;
    this.asked = 0;
    this.left = 0;       // events that follow mode did not list
    for (const [name, , cls] of COLUMNS) {
      const cell = el("th", name, cls);
      cell.scope = "col";
      $("head").append(cell);
    }
    $("table").setAttribute("aria-colcount", COLUMNS.length);
    $("list").onscroll = () => this.draw();
    addEventListener("resize", () => this.draw());
    $("list").onkeydown = event => this.key(event);
    $("filters").onsubmit = event => { event.preventDefault(); $("follow").checked = false; this.search(); };
    $("routine").onchange = () => this.draw();
    for (const id of ["kind", "device", "failed"]) $(id).onchange = () => this.search();
    $("earlier").onclick = () => { $("follow").checked = false; this.load({before: this.first}); };
    $("later").onclick = () => { $("follow").checked = false; this.load({first: this.end}); };
    $("follow").onchange = () => { if ($("follow").checked) this.load({before: this.log.end}); };
  }

  filters() {
    const found = {kind: $("kind").value, device: $("device").value, text: $("text").value.trim(),
      failed: $("failed").checked ? "1" : ""};
    return Object.fromEntries(Object.entries(found).filter(([, value]) => value));
  }

  search() {
    const first = Number($("first").value || this.log.first);
    return this.load($("follow").checked ? {before: this.log.end} : {first: Number.isFinite(first) ? first : 0});
  }

  // A page; a search goes on page by page until there is a screen of rows or nothing is left.
  async load(place) {
    const asked = ++this.asked, filters = this.filters();
    let rows = [], page, first;
    this.searching = true;
    $("count").textContent = "searching …";
    do {
      try { page = await source.page(filters, place); }
      catch (error) { $("count").textContent = error.message; this.searching = false; return; }
      if (asked !== this.asked) return;
      const back = "before" in place;
      rows = back ? [...page.rows, ...rows] : [...rows, ...page.rows];
      first = back ? page.first : first ?? page.first;
      const end = back ? this.log.end : page.end;
      this.searching = !page.done && this.folded(rows).length < 60 && rows.length < MOST_ROWS - PAGE;
      this.show(rows, first, back ? place.last ?? place.before : end);
      if (!this.searching) return;
      $("count").textContent = `searching: event ${back ? page.first : page.end} of ${this.log.end}, ${rows.length} found`;
      place = back ? {before: page.first, last: place.last ?? place.before} : {first: page.end};
    } while (true);
  }

  show(rows, first, end) {
    this.rows = rows.slice(-MOST_ROWS);
    this.first = first;
    this.end = end;
    this.left = 0;
    this.all ??= rows.length;  // of a saved page
    this.said();
    this.draw();
    $("list").scrollTop = $("follow").checked ? this.lines.length * ROW : 0;
    this.onshow?.(first, end);
  }

  said() {
    const log = this.log;
    const total = log.saved ?? `events ${this.first} to ${Math.max(this.first, this.end - 1)} of ${log.end}`;
    const shown = log.saved && this.rows.length === this.all ? "" : `${this.rows.length} ${this.rows.length === 1 ? "activity" : "activities"}; `;
    $("count").textContent = shown + total
      + (this.left ? `; ${this.left} events came too fast and are not listed: search finds them` : "");
    $("earlier").disabled = log.saved !== undefined || this.first <= log.first;
    $("later").disabled = log.saved !== undefined || this.end >= log.end;
  }

  // New activities of a running lab.
  add(message) {
    this.log.end = Math.max(this.log.end, message.end ?? 0);
    if (this.searching) return;
    if (!$("follow").checked) { this.said(); return; }
    const filters = this.filters(), text = (filters.text ?? "").toLowerCase();
    const fresh = message.rows.filter(row => passes(filters, row)
      && (!text || `${row.title} ${row.status} ${row.kind}`.toLowerCase().includes(text)));
    this.left += message.skipped;
    this.end = this.log.end;
    if (fresh.length) {
      // An activity that was not finished when it was listed comes again, and one may end after those that began later.
      const known = new Map([...this.rows, ...fresh].map(row => [row.number, row]));
      this.rows = [...known.values()].sort((one, other) => one.number - other.number).slice(-MOST_ROWS);
      this.first = this.rows[0].number;
    }
    this.said();
    if (fresh.length) {
      this.draw();
      $("list").scrollTop = this.lines.length * ROW;
    }
  }

  // Neighbours that are a driver's routine become one line, unless the user asks for them.
  folded(rows) {
    if ($("routine").checked || $("text").value.trim()) return rows;
    const lines = [];
    let fold;
    for (const row of rows) {
      if (!row.routine || row.number === this.player.wanted) { fold = undefined; lines.push(row); continue; }
      if (!fold) lines.push(fold = {...row, members: []});
      fold.members.push(row);
    }
    return lines.flatMap(line => this.unfold(line));
  }

  unfold(line) {
    if (!line.members) return [line];
    const {members} = line, counts = {}, last = members.at(-1);
    if (members.length === 1) return members;
    for (const each of members) counts[each.routine] = (counts[each.routine] ?? 0) + 1;
    const opened = this.unfolded.has(line.number);
    const words = Object.entries(counts).map(([word, count]) => `${count} ${word}`).join(", ");
    Object.assign(line, {kind: "polling", title: `${opened ? "▾" : "▸"} ${words}`, status: "",
      device: [...new Set(members.map(each => each.device))].join(" "), id: `fold${line.number}`,
      us: (last.at - line.at) * 1e6 + last.us, steps: members.reduce((sum, each) => sum + each.steps, 0)});
    return opened ? [line, ...members] : [line];
  }

  draw() {
    const list = $("list"), chosen = this.player.wanted;
    this.lines = this.folded(this.rows);
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
    const last = Math.min(this.lines.length, first + Math.ceil(list.clientHeight / ROW) + 15);
    const high = (id, count) => { $(id).rows[0].cells[0].style.height = count * ROW + "px"; $(id).hidden = !count; };
    high("above", first);
    high("below", this.lines.length - last);
    const held = document.activeElement?.closest?.("#rows tr") ? document.activeElement.dataset.number : undefined;
    $("table").setAttribute("aria-rowcount", this.lines.length + 1);
    $("rows").replaceChildren(...this.lines.slice(first, last).map((each, i) => {
      const row = el("tr", undefined, each.failed ? "bad" : each.members ? "fold" : "");
      for (const [, value, cls] of COLUMNS) row.append(el("td", value(each), cls));
      row.cells[4].title = each.title;
      row.cells[7].title = each.status;
      row.dataset.number = each.id ?? each.number;
      if (each.members) row.setAttribute("aria-expanded", this.unfolded.has(each.number));
      row.setAttribute("aria-selected", !each.members && each.number === chosen);
      row.setAttribute("aria-rowindex", first + i + 2);
      row.tabIndex = each.number === (chosen ?? this.lines[first].number) ? 0 : -1;
      row.onclick = () => this.take(each);
      return row;
    }));
    const rows = [...$("rows").rows];
    if (rows.length && !rows.some(row => row.tabIndex === 0)) rows[0].tabIndex = 0;
    if (held !== undefined) rows.find(row => row.dataset.number === held)?.focus();
  }

  // A fold opens or closes, an activity plays.
  take(line) {
    if (!line.members) { this.choose(line.number, true); return; }
    if (!this.unfolded.delete(line.number)) this.unfolded.add(line.number);
    this.draw();
  }

  choose(number, play) {
    this.player.choose(number, play);
    this.draw();
    history.replaceState(null, "", "#" + number);
  }

  // Arrows go from row to row, Enter plays the one that has the focus.
  key(event) {
    const row = event.target.closest("#rows tr");
    if (!row) return;
    const place = this.lines.findIndex(each => String(each.id ?? each.number) === row.dataset.number);
    const to = {ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: this.lines.length - 1,
      PageDown: Math.min(place + 20, this.lines.length - 1), PageUp: Math.max(0, place - 20)}[event.key];
    if (event.key === "Enter") this.take(this.lines[place]);
    else if (to !== undefined && to >= 0 && to < this.lines.length) this.focus(to);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Put the row of an activity into the middle of the list; false where it is not in the list.
  reveal(number) {
    this.draw();
    const place = this.lines.findIndex(each => each.number === number && !each.members);
    if (place < 0) return false;
    $("list").scrollTop = place * ROW - $("list").clientHeight / 2;
    this.draw();
    return true;
  }

  focus(place) {
    const list = $("list"), top = place * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + 3 * ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + 3 * ROW - list.clientHeight;
    this.draw();
    [...$("rows").rows].find(row => row.dataset.number === String(this.lines[place].id ?? this.lines[place].number))?.focus();
  }
}
