"use strict";
// The buttons of a running lab, and the strip that shows when the log was busy.

class Hardware {
  constructor(lab, drawing) {
    this.lab = lab;
    this.drawing = drawing;
    this.cables = {};
    if (!lab.running) return;
    for (const functions of Object.values(lab.hosts)) for (const each of functions) {
      for (const port of each.ports) $("buttons").append(this.cable(port));
      if (each.kind === "HCA") $("buttons").append(this.button(`Break HCA ${each.name}`, () => ["fault", each.name, ""]));
    }
  }

  cable(port) {
    const button = this.button(`Pull cable ${port}`, () => ["link", port, this.cables[port].out ? "up" : "down"]);
    this.cables[port] = {button, out: false};
    return button;
  }

  button(text, order) {
    const made = el("button", text);
    made.type = "button";
    made.onclick = async () => {
      made.disabled = true;
      try {
        const words = order();
        $("said").textContent = await source.act(...words);
        if (words[0] === "link") this.set(words[1], words[2] === "down");
      } catch (error) { $("said").textContent = error.message; }
      made.disabled = false;
    };
    return made;
  }

  set(port, out) {
    const cable = this.cables[port];
    if (!cable) return;
    cable.out = out;
    cable.button.textContent = `${out ? "Plug in" : "Pull"} cable ${port}`;
  }

  ports(states) {
    const gone = states === null && this.lab.running;
    for (const button of $("buttons").querySelectorAll("button")) button.disabled = gone;
    if (gone) { $("said").textContent = "the device server does not answer: the pair may have ended"; return; }
    if (!states) return;
    for (const each of states) this.set(each.port, !each.cable);
    this.drawing.ports(states);
  }
}

// Events over time; a click goes to the first event there.
function overview(log, go) {
  const parts = log.parts, most = Math.max(1, ...parts.map(part => part[1]));
  const picture = svg("svg", {viewBox: "0 0 120 30", preserveAspectRatio: "none", "aria-hidden": "true"});
  parts.forEach(([first, count], i) => {
    if (!count) return;
    const high = 2 + 28 * Math.log1p(count) / Math.log1p(most);
    const bar = svg("rect", {x: i, y: 30 - high, width: 0.9, height: high, "data-first": first, "data-end": first + count});
    bar.append(svg("title", {}, `${count} events from event ${first} on`));
    bar.onclick = () => go(first);
    picture.append(bar);
  });
  $("overview").replaceChildren(picture);
  overviewKeys([...picture.children], go);
}

// The strip as a slider: arrows choose a part, Enter goes to its first event.
function overviewKeys(bars, go) {
  const strip = $("overview");
  let at = 0;
  const say = () => {
    bars.forEach((bar, i) => bar.classList.toggle("at", i === at));
    strip.setAttribute("aria-valuenow", at);
    strip.setAttribute("aria-valuetext", bars[at]?.textContent ?? "no events");
  };
  strip.tabIndex = 0;
  strip.setAttribute("role", "slider");
  strip.setAttribute("aria-valuemin", 0);
  strip.setAttribute("aria-valuemax", Math.max(0, bars.length - 1));
  strip.onkeydown = event => {
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: bars.length - 1}[event.key];
    if (event.key === "Enter" && bars[at]) go(Number(bars[at].dataset.first));
    else if (to === undefined) return;
    else at = Math.min(Math.max(0, to), Math.max(0, bars.length - 1));
    say();
    event.preventDefault();
    event.stopPropagation();
  };
  say();
}

// Mark the part of the log that the list shows.
function here(first, end) {
  for (const bar of $("overview").querySelectorAll("rect"))
    bar.classList.toggle("here", Number(bar.dataset.end) > first && Number(bar.dataset.first) < end);
}
