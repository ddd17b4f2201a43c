import type { Model } from "./model";
import { duration } from "./text";

// Absent says that nobody holds or waits, if the page knows that now. Otherwise it says since when it
// does not: somebody may start a second migration by this sentence.
export function Absent({ model, now, text }: { model: Model; now: number; text: string }) {
  if (!model.seenAt) return <p class="problem">Nothing was seen yet, so the page does not know.</p>;
  if (model.link === "live" && now - model.seenAt < 5000) return <p>{text}</p>;
  return <p class="problem">{duration(now - model.seenAt)} ago it was so: “{text}” What is so now is not known.</p>;
}
