// Asks the server, and knows whether it is there.

let token = sessionStorage.getItem("contradpp-token") ?? "";
let alive = true;
let whenAliveChanges = () => {};

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function onAlive(callback) {
  whenAliveChanges = callback;
}

export function setToken(value) {
  token = value;
  sessionStorage.setItem("contradpp-token", value);
}

export const get = (path, signal) => ask(path, { signal });

export const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

async function ask(path, options) {
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name !== "AbortError") notice(false);
    throw error;
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) {
    notice(true);
    return answer;
  }
  throw new Refused(response.status, answer.error?.message ?? `The server answered ${response.status}.`);
}

function notice(now) {
  if (now === alive) return;
  alive = now;
  whenAliveChanges(now);
}
