import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import { openapiDocument } from "../src/api/openapi.ts";

await writeFile(join(import.meta.dirname, "../openapi.yaml"), stringify(openapiDocument(), { lineWidth: 120 }));
