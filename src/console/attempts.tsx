import type { Answer } from "./client.ts";
import { Badge, Copied, Text, Time, Wide } from "./parts.tsx";
import { PHASES } from "./words.ts";

export type Delivery = Answer<"getDelivery">;
export type Attempt = Delivery["attempts"][number];

export function Attempts({ attempts }: { attempts: readonly Attempt[] }) {
  return (
    <section aria-labelledby="attempts-title">
      <h2 id="attempts-title">Attempts</h2>
      <Wide label="table of attempts">
        <table>
          <thead>
            <tr>
              <th>No.</th>
              <th>Claimed</th>
              <th>Verdict</th>
              <th>What was seen</th>
              <th>Idempotency key</th>
              <th>Message id</th>
            </tr>
          </thead>
          <tbody>
            {attempts.map((attempt) => (
              <tr>
                <td>{attempt.number}</td>
                <td>
                  <Time at={attempt.claimed_at} />
                </td>
                <td>
                  {attempt.verdict ? <Badge of={attempt.verdict} /> : "under way"}{" "}
                  {attempt.reason?.replaceAll("_", " ")}
                  {attempt.evidence && <div class="quiet">replaced by evidence: {attempt.evidence}</div>}
                  {!attempt.counted && <div class="quiet">does not count against the four</div>}
                </td>
                <td>
                  <Seen attempt={attempt} />
                </td>
                <td>
                  <Copied value={attempt.idempotency_key} what="the idempotency key" />
                </td>
                <td>
                  {attempt.provider_message_id && (
                    <Copied value={attempt.provider_message_id} what="the provider's message id" />
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
    </section>
  );
}

/** Phase, status and error of a call. */
export function Seen({ attempt }: { attempt: Attempt }) {
  const { phase, status_code, error, retry_after_s } = attempt;
  const says = error?.message ?? error?.code;
  return (
    <>
      {phase && PHASES[phase]}
      {status_code !== null && `, status ${status_code}`}
      {says && (
        <>
          , “<Text value={says} max={300} />”
        </>
      )}
      {retry_after_s !== null && `, asks to wait ${retry_after_s} s`}
    </>
  );
}
