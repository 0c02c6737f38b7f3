import type { Page } from "playwright-core";
import { afterEach, describe, expect, test } from "vitest";
import { ADMIN_KEY } from "../proof/service.ts";
import { until } from "../support/pipeline.ts";
import { complaints, type Doubtful, picture, tenInDoubt } from "./desk.ts";
import { desk, useDesk } from "./rig.ts";

useDesk();
afterEach(() => {
  expect(complaints()).toEqual([]);
});

interface Item {
  readonly id: string;
  readonly to: string;
  readonly resolution: { readonly action: string; readonly by: string; readonly note: string } | null;
}
const open = async () => (await desk.get<{ data: readonly Item[] }>("/v1/attention?limit=100&snoozed=true")).data;
const stateOf = async (id: string) => (await desk.get<{ state: string }>(`/v1/deliveries/${id}`)).state;
const received = (to: string) => (to.includes("@") ? desk.resend : desk.telegram).received.get(to) ?? 0;
const focusedRecipient = (page: Page) => page.locator(".item:focus h2 a").textContent();
const selected = (page: Page) => page.locator('.queue input[name="ids"]:checked').count();

/** Somebody else decides. */
async function abandon(items: readonly Item[]) {
  for (const { id } of items) {
    await fetch(`${desk.url}/v1/attention/${id}/resolve`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_KEY}`, "content-type": "application/json" },
      body: JSON.stringify({ action: "abandon", note: "cleared" }),
    });
  }
}
const abandonAll = async () => abandon(await open());

describe("with the keyboard alone", () => {
  /** Like an operator who knows which were received: the others are sent again. Tells how many keys were pressed. */
  async function triage(page: Page, doubtful: readonly Doubtful[]): Promise<number> {
    let keys = 0;
    const press = async (key: string) => {
      keys += 1;
      await page.keyboard.press(key);
    };
    await press("j");
    for (const { to, received: isReceived } of doubtful) {
      expect(await focusedRecipient(page)).toContain(to);
      await press(isReceived ? "m" : "r");
      await page.getByRole("heading", { name: "1 delivery" }).waitFor();
      await page.keyboard.type(isReceived ? "they have it" : "nothing came");
      if (!isReceived) {
        await press("Tab");
        await press("Space");
      }
      await press("Enter");
      await page.getByText("item was").waitFor();
    }
    return keys;
  }

  test("ten doubtful sends are settled rightly: each recipient has the message once, and the operator's name stands by it", async () => {
    const doubtful = await tenInDoubt(desk);
    const page = await desk.open("Ada Lovelace");
    await picture(page, "queue");
    const startedAt = performance.now();
    const keys = await triage(page, doubtful);
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    process.stdout.write(`ten doubtful sends by keyboard: ${keys} keys beside the notes, ${seconds} s by script\n`);
    await page.getByText("Nothing needs attention.").waitFor();
    await picture(page, "queue-empty");
    for (const { id, to } of doubtful) {
      await until(
        () => stateOf(id),
        (state) => state === "sent",
      );
      expect(received(to), to).toBe(1);
      const { data } = await desk.get<{ data: { type: string; by?: string }[] }>(`/v1/deliveries/${id}/timeline`);
      expect(data.find(({ type }) => type === "attention.resolved")?.by).toBe("Ada Lovelace (key admin)");
    }
  });

  test("several are selected and abandoned together, after a page that names their number and the risk", async () => {
    const doubtful = await tenInDoubt(desk);
    const page = await desk.open("Ada");
    for (const key of ["j", "x", "j", "x", "j", "j", "x", "k"]) await page.keyboard.press(key);
    expect(await selected(page)).toBe(3);
    expect(await page.locator("#selected").textContent()).toBe("3 selected");
    await page.keyboard.press("a");
    await page.getByRole("heading", { name: "Abandon: 3 deliveries" }).waitFor();
    expect(await page.locator(".risks").textContent()).toContain("never");
    await picture(page, "confirm-three");
    await page.keyboard.press("Escape");
    await page.getByRole("heading", { name: "Needs attention" }).waitFor();
    expect(await open()).toHaveLength(10);
    // Back, with nothing done: what was selected still is.
    expect(await selected(page)).toBe(3);
    expect(await focusedRecipient(page)).toContain(doubtful[2]?.to);
    await page.keyboard.press("a");
    await page.getByRole("heading", { name: "Abandon: 3 deliveries" }).waitFor();
    await page.keyboard.type("the outage of today");
    await page.keyboard.press("Enter");
    await page.getByText("3 items were abandoned.").waitFor();
    // The next one is where the first of them was: none before it is passed over.
    expect(await focusedRecipient(page)).toContain(doubtful[2]?.to);
    const states = await Promise.all(doubtful.map(({ id }) => stateOf(id)));
    expect(states.flatMap((state, n) => (state === "failed" ? [n] : []))).toEqual([0, 1, 3]);
    await abandonAll();
  });

  test("an item is taken on and put off, and the keys are told by ?", async () => {
    await tenInDoubt(desk);
    const page = await desk.open("Grace");
    await page.keyboard.press("?");
    await page.getByText("put off for an hour").waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("i");
    await page.getByText("1 item was assigned to you.").waitFor();
    await page.getByText("Grace is on it").waitFor();
    await page.keyboard.press("z");
    await page.getByText("1 item was put off.").waitFor();
    expect(await page.locator(".queue .item").count()).toBe(9);
    await abandonAll();
  });
});

describe("the queue refreshes itself", () => {
  test("and keeps what is selected, where the focus is, and which item it is on", async () => {
    const doubtful = await tenInDoubt(desk);
    const page = await desk.open("Ada");
    for (const key of ["j", "j", "x", "j", "x"]) await page.keyboard.press(key);
    const before = await focusedRecipient(page);
    // Somebody else settles the first one, and a new one comes.
    await abandon((await open()).filter(({ to }) => to === doubtful[0]?.to));
    const more = await tenInDoubt(desk);
    await page.getByText(more[9]?.to ?? "", { exact: true }).waitFor();
    expect(await selected(page)).toBe(2);
    expect(await page.locator("#selected").textContent()).toBe("2 selected");
    expect(await focusedRecipient(page)).toBe(before);
    await page.keyboard.press("j");
    expect(await focusedRecipient(page)).toContain(doubtful[3]?.to);
    await abandonAll();
    await page.getByText("Nothing needs attention.").waitFor();
  });
});

describe("two operators at one item", () => {
  test("the first decision stands; the second is told who was first and what won, and nothing was done by them", async () => {
    const [, second] = await tenInDoubt(desk);
    const ada = await desk.open("Ada");
    const bob = await desk.open("Bob");
    await until(
      async () => (await desk.get<{ total: number }>("/v1/attention/summary")).total,
      (total) => total === 10,
    );
    const decide = async (page: Page, key: string, note: string) => {
      for (const pressed of ["j", "j", key]) await page.keyboard.press(pressed);
      await page.getByRole("heading", { name: "1 delivery" }).waitFor();
      await page.keyboard.type(note);
    };
    await decide(ada, "m", "she has it");
    await decide(bob, "a", "too late");
    await Promise.all([ada.keyboard.press("Enter"), bob.keyboard.press("Enter")]);
    const outcome = (page: Page) =>
      Promise.race([
        page
          .getByText(/1 item was/)
          .waitFor()
          .then(() => "done"),
        page
          .getByText("Nothing was done by you.")
          .waitFor()
          .then(() => "told"),
      ]);
    const outcomes = await Promise.all([outcome(ada), outcome(bob)]);
    expect(outcomes.toSorted()).toEqual(["done", "told"]);
    const [winner, loser] = outcomes[0] === "done" ? (["Ada", bob] as const) : (["Bob", ada] as const);
    expect(await loser.getByRole("alert").textContent()).toContain(`${winner} (key admin) decided`);
    await picture(loser, "somebody-was-first");
    expect(await stateOf(second?.id ?? "")).toBe(winner === "Ada" ? "sent" : "failed");
    await abandonAll();
  });
});
