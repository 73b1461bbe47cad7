"use strict";
// Two logs side by side: each line is what was asked in one and in the other.

function side(row, cells, place) {
  if (!row) { cells.append(el("td"), el("td", "—"), el("td")); return; }
  const link = el("a", row.title);
  link.href = `${place}/#${row.number}`;
  const words = el("td");
  words.append(link);
  cells.append(el("td", row.number, "r"), words, el("td", row.status, row.failed ? "bad" : ""));
}

class Comparison {
  constructor(found) {
    this.pairs = found.pairs;
    this.at = this.pairs.findIndex(pair => !pair.same);
    const head = el("tr");
    head.append(el("th", "of"));
    for (const title of found.titles) head.append(el("th", "event", "r"), el("th", title), el("th", "status"));
    $("head").append(head);
    $("only").onchange = () => this.draw();
    $("on").onclick = () => this.step(1);
    $("back").onclick = () => this.step(-1);
    addEventListener("keydown", event => {
      if (event.target.closest("input") || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "n") this.step(1);
      if (event.key === "p") this.step(-1);
    });
    const count = this.pairs.filter(pair => !pair.same).length;
    const cut = found.cut.some(each => each) ? "; the beginning of the logs only" : "";
    $("state").textContent = (count ? `${count} of ${this.pairs.length} differ` : `alike: ${this.pairs.length} ${this.pairs.length === 1 ? "activity" : "activities"}`) + cut;
    this.draw();
  }

  draw() {
    const first = this.pairs.findIndex(pair => !pair.same), only = $("only").checked;
    $("rows").replaceChildren(...this.pairs.flatMap((pair, i) => {
      if (only && pair.same) return [];
      const row = el("tr", undefined, pair.same ? "" : "differs");
      row.dataset.place = i;
      if (i === first) row.id = "first";
      row.append(el("td", (pair.one ?? pair.other).device + (i === first ? ": first difference" : pair.same ? "" : " ≠")));
      side(pair.one, row, "one");
      side(pair.other, row, "other");
      return [row];
    }));
    this.show();
  }

  step(way) {
    for (let place = this.at + way; place >= 0 && place < this.pairs.length; place += way) {
      if (this.pairs[place].same) continue;
      this.at = place;
      this.show();
      return;
    }
  }

  show() {
    for (const row of $("rows").rows) row.classList.toggle("now", Number(row.dataset.place) === this.at);
    [...$("rows").rows].find(row => Number(row.dataset.place) === this.at)?.scrollIntoView({block: "center"});
  }
}

source.get("compare").then(found => new Comparison(found), error => { $("state").textContent = error.message; });
