// @ts-check
/** Against a daemon that tests/daemon/test_node_client.py has started; it says where. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { HotwireClient, HotwireError } from "../client.js";

/** @param {string} name */
function given(name) {
  const value = process.env[name];
  assert.ok(value, `${name} is not set: tests/daemon/test_node_client.py runs these tests`);
  return value;
}

const FILE = given("HOTWIRE_TEST_FILE");
const SOCKET = given("HOTWIRE_TEST_SOCKET");
const TLS = `tls://${given("HOTWIRE_TEST_TLS")}`;

/** @param {string} role */
function pair(role) {
  const folder = given("HOTWIRE_TEST_CERTIFICATES");
  return {
    ca: readFileSync(join(folder, "authority.pem")),
    cert: readFileSync(join(folder, `${role}.crt`)),
    key: readFileSync(join(folder, `${role}.key`)),
  };
}

/**
 * @param {Promise<any>} call
 * @param {string} code
 * @param {string} reason
 * @returns {Promise<HotwireError>}
 */
async function refused(call, code, reason) {
  const error = await call.then(
    () => assert.fail(`the call was not refused with ${reason}`),
    (found) => found,
  );
  assert.ok(error instanceof HotwireError, String(error));
  assert.deepEqual([error.code, error.reason], [code, reason], error.message);
  return error;
}

/** @type {[string, () => HotwireClient, string][]} */
const WAYS = [
  ["over the Unix socket", () => new HotwireClient(SOCKET), "local"],
  ["over mutual TLS", () => new HotwireClient(TLS, pair("admin")), "admin-caller"],
];

for (const [way, connect, owner] of WAYS) {
  test(`registers, lists, sets the policy and watches ${way}`, async () => {
    const client = connect();
    try {
      const name = `from-node-${owner}`;
      const checked = await client.register(FILE, { name, validateOnly: true });
      assert.equal(checked.vector.name, name);
      assert.deepEqual(await client.list(), []);

      const { vector, converged } = await client.register(FILE, { name, model: "org/model" });
      assert.equal(vector.owner, owner);
      assert.equal(vector.model, "org/model");
      assert.match(vector.revision, /^[0-9a-f]{64}$/);
      assert.equal(converged, true);
      assert.deepEqual((await client.list()).map((found) => found.name), [name]);

      const { policy } = await client.setPolicy({ max_relative_dose: 0.25 });
      assert.equal(policy.max_relative_dose, 0.25);
      await client.setPolicy({ kill_switch: true });
      assert.equal((await client.policy()).kill_switch, true);
      assert.equal((await client.policy()).max_relative_dose, 0.25);

      let samples = 0;
      for await (const stats of client.watchStats(0.1)) {
        assert.deepEqual([stats.vectors, stats.kill_switch], ["1", true]);
        if (++samples === 2) break;
      }

      await client.setPolicy({ kill_switch: false });
      assert.equal((await client.delete(name)).vector.name, name);
    } finally {
      client.close();
    }
  });
}

test("a refusal has the daemon's reason and the fields at fault", async () => {
  const client = new HotwireClient(SOCKET);
  try {
    const missing = await refused(client.delete("nobody"), "NOT_FOUND", "VECTOR_NOT_FOUND");
    assert.equal(missing.metadata.name, "'nobody'");
    const bad = await refused(client.register(FILE, { name: "No Name" }), "INVALID_ARGUMENT", "NAME_INVALID");
    assert.equal(bad.violations[0].field, "header.name");
    const junk = join(tmpdir(), `hotwire-junk-${process.pid}.safetensors`);
    writeFileSync(junk, Buffer.alloc(3 << 20));
    await refused(client.register(junk), "INVALID_ARGUMENT", "VECTOR_FORMAT_INVALID");
    const stats = client.watchStats(0.001);
    await refused(stats.next(), "INVALID_ARGUMENT", "INTERVAL_INVALID");
    assert.throws(() => client.setPolicy({}), TypeError);
  } finally {
    client.close();
  }
});

test("roles and tokens decide over TLS", async () => {
  const viewer = new HotwireClient(TLS, pair("viewer"));
  const stranger = new HotwireClient(TLS, pair("stranger"));
  const known = new HotwireClient(TLS, { ...pair("stranger"), token: given("HOTWIRE_TEST_TOKEN") });
  try {
    await refused(viewer.register(FILE), "PERMISSION_DENIED", "ROLE_TOO_LOW");
    assert.deepEqual(await viewer.list(), []);
    await refused(stranger.list(), "UNAUTHENTICATED", "CALLER_UNKNOWN");
    assert.equal((await known.policy()).kill_switch, false);
  } finally {
    for (const client of [viewer, stranger, known]) client.close();
  }
});

test("without a certificate there is no connection, and plain text is no address", async () => {
  const { ca } = pair("admin");
  const client = new HotwireClient(TLS, { ca, timeoutMs: 3000 });
  try {
    await refused(client.list(), "UNAVAILABLE", "UNAVAILABLE");
  } finally {
    client.close();
  }
  assert.throws(() => new HotwireClient("127.0.0.1:1"), /tls:\/\//);
});
