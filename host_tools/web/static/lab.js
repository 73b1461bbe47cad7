"use strict";
// The buttons of a running lab.

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
