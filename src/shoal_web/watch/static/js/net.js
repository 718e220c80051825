// What the page asks of its server. It asks nobody else.

export const PAUSE = 1500; // ms between two times that the page asks what is new

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
  const data = await answer.json().catch((error) => {
    if (error.name === "AbortError") throw error; // a newer question came while this answer was read
    return {};
  });
  if (!answer.ok) throw new Refused(data.error ?? "the server answers " + answer.status);
  return data;
}

/** The lines of JSON that `/api/...` sends, one after another. Raises `Refused`. */
export async function* stream(path, parameters) {
  const answer = await fetch("/api/" + path + "?" + new URLSearchParams(parameters), { headers: { "X-Shoal": "ask" } }).catch(() => { throw new Refused("the server does not answer"); });
  if (!answer.ok) throw new Refused((await answer.json().catch(() => ({}))).error ?? "the server answers " + answer.status);
  let rest = "";
  for (const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
    if (done) return;
  }
}

/** Calls `news(runs)` every other moment, and `state(text, kind)` about the connection. A hidden page does not ask. */
export async function listen(news, state) {
  for (;;) {
    if (!document.hidden) {
      try {
        const { runs } = await ask("runs");
        state("connected", "on");
        news(runs);
      } catch (error) {
        if (!(error instanceof Refused)) console.error(error);
        state("no connection, trying again", "off");
      }
    }
    await new Promise((done) => setTimeout(done, PAUSE));
  }
}
