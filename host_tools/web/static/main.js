"use strict";
// Brings the parts of the page together.

let theHosts = [], theAxis, player;
const hosts = () => theHosts;

function options(lab) {
  const devices = Object.values(lab.hosts).flat().flatMap(each => each.ports.length > 1 ? [each.name, ...each.ports.slice(1)] : [each.name]);
  const all = [...new Set([...theHosts, ...devices])];
  $("kind").append(new Option("all", ""), ...KINDS.map(kind => new Option(kind, kind)));
  $("device").append(new Option("all", ""), ...all.map(name => new Option(name, name)));
}

// Space plays, left and right step, wherever no field or button wants the key itself.
function keys() {
  addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    if (event.key === " " && !event.target.closest("button")) $("run").click();
    else if (event.key === "ArrowRight") $("on").click();
    else if (event.key === "ArrowLeft") $("back").click();
    else return;
    event.preventDefault();
  });
}

async function begin() {
  const lab = await source.lab();
  theHosts = Object.keys(lab.hosts);
  document.title = `bluebridge: ${lab.title}`;
  $("title").textContent = lab.title;
  const said = [lab.running ? "running" : `${lab.log.end} events in ${lab.log.seconds.toFixed(1)} s${lab.started && ", from " + lab.started + " on"}`];
  if (lab.dropped) said.push(lab.dropped);
  $("state").textContent = said.join("; ");
  options(lab);
  const drawing = new Drawing(lab), hardware = new Hardware(lab, drawing);
  player = new Player(drawing);
  drawing.into($("drawing"));
  ["a", "b"].forEach((name, i) => { $(`legend-${name}`).textContent = `host ${theHosts[i]}`; $(`legend-${name}`).parentNode.hidden = i >= theHosts.length; });
  const list = new List(player, {...lab.log, saved: lab.saved});
  theAxis = new TimeAxis(lab.log, first => { $("follow").checked = false; $("first").value = first; list.search(); });
  player.queues.busy = () => list.searching;
  list.onshow = (first, end) => theAxis.here(first, end);
  keys();
  $("follow").checked = lab.running && lab.open === undefined;
  $("follow-label").hidden = lab.saved !== undefined;
  const named = /^#[0-9]+$/.test(location.hash) ? Number(location.hash.slice(1)) : undefined;  // such as a link to one
  if (named !== undefined && !lab.saved) { $("follow").checked = false; $("first").value = named; }
  await list.search();
  const first = named ?? lab.open ?? list.rows.find(row => row.steps > 1)?.number ?? list.rows[0]?.number;
  if (first !== undefined) list.choose(first, false);
  if (lab.open !== undefined && named === undefined && !list.reveal(lab.open)) {
    await list.load({first: lab.open});
    list.reveal(lab.open);
  }
  source.follow(message => {
    if (message.error) { $("state").textContent = message.error; return; }
    if (message.rates) drawing.counters(message.rates);
    if ("ports" in message) hardware.ports(message.ports);
    if (message.rows) list.add(message);
    if (lab.running) $("state").textContent = "running";
  }, () => { $("state").textContent = "the server of this page has ended or is out of reach"; });
}

addEventListener("hashchange", () => location.reload());  // a link to another moment
begin().catch(error => { $("state").textContent = error.message; });
