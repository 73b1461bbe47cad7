"use strict";
// Where activities come from: the server, or the file that the page itself is.

const $ = id => document.getElementById(id);

function el(tag, text, cls) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (cls) made.className = cls;
  return made;
}

class Server {
  async get(path) {
    const answer = await fetch(path);
    const found = await answer.json();
    if (found.error) throw new Error(found.error);
    return found;
  }

  lab() { return this.get("lab"); }
  activity(number) { return this.get("activity/" + number); }

  async fields(number) { return (await this.get("fields/" + number)).fields; }

  queues(number, pair) {
    return this.get(`queues/${number}?` + new URLSearchParams(pair ? {device: pair[0], qpn: pair[1]} : {}));
  }

  timeline(since, until) { return this.get("timeline?" + new URLSearchParams({since, until})); }

  async moments() { return (await this.get("moments")).moments; }

  page(filters, place) { return this.get("activities?" + new URLSearchParams({...filters, ...place})); }

  async act(word, name, action) {
    const answer = await fetch("act", {method: "POST", headers: {"Content-Type": "application/json"},
      body: JSON.stringify({word, name, action})});
    const found = await answer.json();
    if (found.error) throw new Error(found.error);
    return found.done;
  }

  follow(told, lost) {
    const events = new EventSource("events");
    events.onmessage = message => told(JSON.parse(message.data));
    events.onerror = () => lost();
  }
}

class Saved {
  constructor(saved) { this.saved = saved; }
  async lab() { return this.saved.lab; }
  async activity(number) {
    return this.saved.activities.find(each => each.number === number || each.list.some(step => step.number === number));
  }

  async fields() { return []; }  // of a saved page: its steps have the words only

  async queues() { return {pairs: [], done: true}; }

  async timeline() { return this.saved.lab.log.timeline; }

  async moments() { return this.saved.lab.log.moments; }

  async page(filters, place) {
    const first = Number(place.first ?? 0), text = (filters.text ?? "").toLowerCase();
    const rows = this.saved.activities.filter(each => each.number >= first && passes(filters, each)
      && (!text || JSON.stringify(each).toLowerCase().includes(text)));
    return {first, rows, end: this.saved.lab.log.end, done: true};
  }

  follow() {}
}

// All but the text; a host stands for all its functions and ports, a mark is of all those of its host or the pair.
function passes(filters, row) {
  return (!filters.kind || row.kind === filters.kind)
    && (!filters.device || row.device === filters.device || hostOf(row.device) === filters.device
      || ["", hostOf(filters.device)].includes(row.mark_of))
    && (!filters.failed || row.failed);
}

const hostOf = device => device.split("/")[0].split(".")[0];
const source = typeof SAVED === "undefined" ? new Server() : new Saved(SAVED);
