// What the page asks of its server, and the news that comes from there. Nothing else is asked anywhere.

export class Refused extends Error {}

/** The answer of `/api/...`. Raises `Refused` with words for the reader. */
export async function ask(path, parameters = {}, signal = undefined) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const address = "/api/" + path + (given.length ? "?" + new URLSearchParams(given) : "");
  let answer;
  try {
    answer = await fetch(address, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("the server does not answer");
  }
  if (answer.status === 401) location.assign("/enter");
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(data.error ?? "the server answers " + answer.status);
  return data;
}

/** Calls `news(versions)` whenever a run has something new, and `state(text, kind)` about the connection. */
export function listen(news, state) {
  const events = new EventSource("/events");
  events.addEventListener("open", () => state("connected", "on"));
  events.addEventListener("news", (event) => news(JSON.parse(event.data).versions));
  events.addEventListener("error", () => state("no connection, trying again", "off"));
}
