/** The directions of dependency (ARCHITECTURE.md). A delivery travels down the page; no room steps back up. */
const rooms = {
  ledger: [],
  providers: ["ledger"],
  store: ["ledger"],
  worker: ["ledger", "store", "providers"],
  api: ["ledger", "store", "providers", "callbacks"],
  callbacks: ["ledger", "store"],
  console: ["ledger", "api"],
};

const direction = ([room, allowed]) => ({
  name: `${room}-direction`,
  comment: `src/${room} may import ${["itself", ...allowed].join(", ")} of our own rooms`,
  severity: "error",
  from: { path: `^src/${room}/` },
  to: { path: "^src/", pathNot: `^src/(${[room, ...allowed].join("|")})/` },
});

export default {
  forbidden: [
    ...Object.entries(rooms).map(direction),
    {
      name: "ledger-is-pure",
      comment:
        "the core does no I/O and reads no clock: it may use node:assert, node:crypto (hashing), canonicalize and luxon (time zones) only",
      severity: "error",
      from: { path: "^src/ledger/" },
      to: {
        pathNot: [
          "^src/ledger/",
          "^(node:)?(assert|crypto)$",
          "node_modules/canonicalize/",
          "node_modules/(@types/)?luxon/",
        ],
      },
    },
    { name: "nobody-imports-main", severity: "error", from: {}, to: { path: "^src/main\\.ts$" } },
    {
      name: "src-does-not-import-tests",
      severity: "error",
      from: { path: "^src/" },
      to: { path: "^(test|bench|examples|scripts)/" },
    },
    { name: "no-circular", severity: "error", from: {}, to: { circular: true } },
    { name: "no-unresolvable", severity: "error", from: {}, to: { couldNotResolve: true } },
    {
      name: "not-to-dev-dependency",
      severity: "error",
      from: { path: "^src/" },
      to: { dependencyTypes: ["npm-dev", "npm-no-pkg", "npm-unknown"] },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsConfig: { fileName: "tsconfig.json" },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: { exportsFields: ["exports"], conditionNames: ["import", "node", "default", "types"] },
  },
};
