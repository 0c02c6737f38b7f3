import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { chat, email } from "../api/open-app.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";
import { putInDoubt } from "../support/doubt.ts";
import { openConsole, type SignedIn, signIn } from "./open-console.ts";

let database: TestDatabase;
let app: Awaited<ReturnType<typeof openConsole>>;
let ada: SignedIn;
let reader: SignedIn;
beforeAll(async () => {
  database = await testDatabase();
  app = await openConsole(database.db);
  ada = await signIn(app.visit);
  reader = await signIn(app.visit, await app.keyFor(null, "attention:read", "deliveries:read"), "Eve");
});
afterAll(() => database.close());
beforeEach(async () => {
  await empty(database.db, "deliveries", "suppressions", "events", "receipts");
});

async function doubtful(request: Record<string, unknown> = chat()) {
  const { id } = (await app.post(request)).body;
  return { id, item: await putInDoubt(database.db, id) };
}
const resolutionOf = async (item: string) => (await app.ask(`/v1/attention/${item}`)).body.resolution;
const decision = (ids: readonly string[], more: Record<string, string> = {}): string[][] => [
  ...ids.map((id) => ["ids", id]),
  ...Object.entries({ action: "abandon", note: "too late", ...more }),
];

describe("what a key may not do, its console may not either", () => {
  test.each([
    ["/console/attention/resolutions", { action: "abandon", note: "n" }],
    ["/console/attention/assign", { to: "me" }],
    ["/console/attention/snooze", { for: "3600" }],
    ["/console/attention/notes", { note: "n" }],
    ["/console/deliveries/01a24ffb-c7f2-708a-8db8-d638c63b6100/cancel", {}],
    ["/console/overview/pause", { channel: "email", reason: "r" }],
    ["/console/overview/resume", { channel: "email" }],
    ["/console/suppressions/add", { channel: "email", recipient: "a@example.com", reason: "r" }],
    ["/console/suppressions/remove", { channel: "email", recipient: "a@example.com", reason: "r" }],
    ["/console/keys/make", { name: "mine", scopes: "keys:write" }],
    ["/console/keys/revoke", { id: "01a24ffb-c7f2-708a-8db8-d638c63b6100" }],
  ])("%s is refused", async (path, form) => {
    const { item } = await doubtful();
    const answered = await reader.post(path, { ids: item, ...form });
    expect([answered.status, await resolutionOf(item)]).toEqual([403, null]);
    expect(await answered.text()).toContain("lacks the scope");
  });

  test.each(["/console/overview", "/console/suppressions", "/console/receipts", "/console/keys"])(
    "%s is not shown",
    async (path) => {
      expect((await reader.get(path)).status).toBe(403);
      expect(await (await reader.get("/console/attention")).text()).not.toContain(`href="${path}"`);
    },
  );

  test("offers of what is not allowed are not made", async () => {
    const { id, item } = await doubtful();
    expect((await reader.get(`/console/attention/resolve?ids=${item}&action=abandon`)).status).toBe(403);
    for (const path of ["/console/attention", `/console/deliveries/${id}`]) {
      expect(await (await ada.get(path)).text()).toContain("action=abandon");
      expect(await (await reader.get(path)).text()).not.toContain("action=abandon");
    }
  });

  test("a producer's key sees its own items and deliveries alone", async () => {
    const shop = await app.keyFor("shop", "attention:read", "deliveries:read", "deliveries:write");
    const { id } = (await app.post(email({ name: "of-the-shop" }), { key: shop })).body;
    const { id: other, item } = await doubtful(email({ name: "of-another" }));
    const mine = await signIn(app.visit, shop, "Shop");
    expect((await mine.get(`/console/deliveries/${id}`)).status).toBe(200);
    for (const path of [
      `/console/deliveries/${other}`,
      `/console/deliveries/${other}/raw`,
      `/console/deliveries/${other}/html`,
      `/console/attention/items/${item}`,
    ]) {
      expect((await mine.get(path)).status, path).toBe(404);
    }
    const list = await (await mine.get("/console/deliveries")).text();
    expect([list.includes("of-the-shop"), list.includes("of-another")]).toEqual([true, false]);
    expect(await (await mine.get("/console/attention")).text()).toContain("Nothing needs attention.");
  });
});

describe("a decision", () => {
  test("is signed with the operator's name and the key's", async () => {
    const { item } = await doubtful();
    const answered = await ada.post("/console/attention/resolutions", decision([item]));
    expect(answered.headers.get("location")).toBe("/console/attention");
    expect(answered.headers.get("set-cookie")).toContain(`ledger_done=abandon.1.0.${item}`);
    expect(await resolutionOf(item)).toMatchObject({ action: "abandon", by: "Ada (key admin)", note: "too late" });
  });

  test("that may duplicate is not taken without the acknowledgement; what was typed is kept", async () => {
    const { item } = await doubtful();
    const answered = await ada.post("/console/attention/resolutions", decision([item], { action: "resend" }));
    expect([answered.status, await resolutionOf(item)]).toEqual([422, null]);
    const page = await answered.text();
    expect(page).toContain("Nothing was done.");
    expect(page).toContain('value="too late"');
  });

  test("of many tells which were not done, and why; the others are", async () => {
    const [one, two] = [await doubtful(), await doubtful()];
    await ada.post("/console/attention/resolutions", decision([one.item], { action: "mark_sent" }));
    const answered = await ada.post("/console/attention/resolutions", decision([one.item, two.item]));
    expect(answered.status).toBe(409);
    expect(await answered.text()).toContain("1 delivery of 2 resolved");
    expect([(await resolutionOf(one.item)).action, (await resolutionOf(two.item)).action]).toEqual([
      "mark_sent",
      "abandon",
    ]);
  });

  test("sent twice is done once, and the second answer says who was first", async () => {
    const { item } = await doubtful();
    const answers = await Promise.all(
      [1, 2, 3].map(() => ada.post("/console/attention/resolutions", decision([item]))),
    );
    expect(answers.map(({ status }) => status).toSorted()).toEqual([303, 409, 409]);
  });

  test("names each item once, however often the form does; what is no item's id is no item", async () => {
    const [one, two] = [await doubtful(), await doubtful()];
    const ids = [one.item, one.item, two.item, "", ".", "..", "x\ny", "x"];
    const asked = new URLSearchParams([...ids.map((id): [string, string] => ["ids", id]), ["action", "abandon"]]);
    const page = await (await ada.get(`/console/attention/resolve?${asked}`)).text();
    expect(page).toContain("Abandon: 2 deliveries");
    expect(page).not.toContain("not open any more");
    const answered = await ada.post("/console/attention/resolutions", decision(ids));
    expect(answered.headers.get("set-cookie")).toContain("ledger_done=abandon.2.0");
  });

  test.each(["", ".", "..", "x", "x\ny"])(
    "without an item (%j) is none: nothing is selected, nothing done",
    async (id) => {
      const { item } = await doubtful();
      for (const path of [
        "/console/attention/resolve",
        "/console/attention/assign",
        "/console/attention/snooze",
        "/console/attention/notes",
      ]) {
        const answered = await ada.post(path, {
          ids: id,
          action: "abandon",
          to: "me",
          for: "60",
          note: "n",
          back: "delivery",
        });
        expect([answered.status, (await answered.text()).includes("nothing to decide")], path).toEqual([
          path.endsWith("/resolve") ? 303 : 400,
          !path.endsWith("/resolve"),
        ]);
      }
      expect(await resolutionOf(item)).toBeNull();
    },
  );

  test("about all of a filter is taken on for all of it, and for nothing else", async () => {
    const [one, two] = [await doubtful(), await doubtful()];
    const other = await doubtful(email());
    const answered = await ada.post("/console/attention/assign", { all: "2", channel: "telegram", to: "me" });
    expect(answered.headers.get("set-cookie")).toContain("ledger_done=assign.2.0");
    const assignees = [one, two, other].map(async ({ item }) => (await app.ask(`/v1/attention/${item}`)).body.assignee);
    expect(await Promise.all(assignees)).toEqual(["Ada", "Ada", null]);
  });

  test("of more than a thousand items is refused as a whole", async () => {
    const ids = Array.from({ length: 1_001 }, (_, n) => `01a24ffb-c7f2-708a-8db8-${String(n).padStart(12, "0")}`);
    expect((await ada.post("/console/attention/resolutions", decision(ids))).status).toBe(422);
  });

  test("is told once, by a cookie that no link can bring, and not by a page that refreshes itself", async () => {
    const { item } = await doubtful();
    const answered = await ada.post("/console/attention/resolutions", decision([item]));
    const cookie = `${ada.cookie}; ${(answered.headers.get("set-cookie") ?? "").split(";")[0]}`;
    const refreshed = await app.visit("/console/attention", { cookie, headers: { "hx-request": "true" } });
    expect([await refreshed.text(), refreshed.headers.get("set-cookie")]).toEqual([
      expect.not.stringContaining("was abandoned"),
      null,
    ]);
    const shown = await app.visit("/console/attention", { cookie });
    expect(await shown.text()).toContain("1 item was abandoned.");
    expect(shown.headers.get("set-cookie")).toMatch(/^ledger_done=;/);
    for (const said of ["constructor.1.0", "abandon.1.0</script>", "x"]) {
      const answer = await app.visit("/console/attention", { cookie: `${ada.cookie}; ledger_done=${said}` });
      expect(answer.status, said).toBe(200);
    }
    expect(await (await ada.get("/console/attention?done=abandon&count=5000")).text()).not.toContain("5,000");
  });

  test("is asked for by an address without being taken", async () => {
    const { item } = await doubtful();
    const page = await ada.get(`/console/attention/resolve?ids=${item}&action=abandon`);
    expect([page.status, await resolutionOf(item)]).toEqual([200, null]);
    expect((await ada.get(`/console/attention/resolutions?ids=${item}&action=abandon&note=n`)).status).toBe(404);
    expect(await resolutionOf(item)).toBeNull();
  });
});

describe("cancelling", () => {
  test("ends a delivery that waits; one that may have been sent is left as it is, and the page says why", async () => {
    const { id } = (await app.post(chat())).body;
    expect(await (await ada.get(`/console/deliveries/${id}`)).text()).toContain("Cancel it");
    expect((await ada.post(`/console/deliveries/${id}/cancel`, {})).headers.get("set-cookie")).toContain(
      "ledger_done=cancel",
    );
    expect((await app.ask(`/v1/deliveries/${id}`)).body.state).toBe("cancelled");
    const doubt = await doubtful();
    expect((await ada.post(`/console/deliveries/${doubt.id}/cancel`, {})).status).toBe(409);
  });
});

describe("a key", () => {
  test("is shown when it is made, never again, and not made twice by a page that is loaded anew", async () => {
    const form = [
      ["name", "night"],
      ["producer", "shop"],
      ["scopes", "deliveries:read"],
    ];
    const made = await (await ada.post("/console/keys/make", form)).text();
    const key = /dl_[A-Za-z0-9_-]{40,}/.exec(made)?.[0] ?? "";
    expect((await app.ask("/v1/deliveries", { key })).status).toBe(200);
    expect(await (await ada.get("/console/keys")).text()).not.toContain(key);
    const again = await ada.post("/console/keys/make", form);
    expect([again.status, (await again.text()).includes("dl_")]).toEqual([422, false]);
    const clicks = await Promise.all(
      [1, 2, 3].map(() => ada.post("/console/keys/make", [["name", "two clicks"], ...form.slice(1)])),
    );
    expect(clicks.map(({ status }) => status).toSorted()).toEqual([200, 422, 422]);
  });
});

describe("odd addresses", () => {
  test.each([
    "/console/deliveries/x",
    "/console/deliveries/01a24ffb-c7f2-708a-8db8-d638c63b6100",
    "/console/deliveries/%00",
    "/console/deliveries/..%2f..%2fv1%2fkeys",
    "/console/attention/items/x",
    "/console/attention?cursor=x",
    "/console/attention?older_than=soon",
    "/console/attention?assignee=%00",
    "/console/deliveries?accepted_after=soon",
    "/console/deliveries?cursor=x&state=nowhere",
    "/console/suppressions?cursor=x",
    "/console/receipts?cursor=x",
    "/console/attention/resolve?ids=x&action=abandon",
    "/console/keys/x/revoke",
    "/console/nowhere",
  ])("%s is answered with a page that says what is wrong", async (path) => {
    const answered = await ada.get(path);
    expect(answered.status, path).toBeLessThan(500);
    expect(answered.status, path).not.toBe(200);
    if (answered.status !== 303) expect(await answered.text()).toContain("<h1>");
  });
});
