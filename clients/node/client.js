// @ts-check
/**
 * A client of hotwired: registers vectors, reads and sets the policy, watches counters.
 *
 *     const client = new HotwireClient("unix:/run/hotwire/hotwired.sock");
 *     await client.register("joy.safetensors");
 *     client.close();
 *
 * Messages are plain objects with the proto's field names; 64-bit numbers are strings. Whatever
 * goes wrong in a call is a HotwireError.
 */

import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

import { HotwireError } from "./errors.js";

export { HotwireError };

const HERE = dirname(fileURLToPath(import.meta.url));
/** The API's files: beside this one where it is packed, else those of the repository. */
const PROTO_DIR = [join(HERE, "proto"), join(HERE, "..", "..", "proto")].find(existsSync);
const CHUNK_BYTES = 256 * 1024;
const PAGE_SIZE = 1000;
const DEFAULT_TIMEOUT_MS = 10_000;

/**
 * What is shown to a daemon on TCP, all PEM as buffers. Each but `ca` is optional; the daemon asks
 * for a certificate and its key always.
 * @typedef {object} Credentials
 * @property {Buffer} [ca] Who has signed the daemon's certificate.
 * @property {Buffer} [cert] This client's certificate.
 * @property {Buffer} [key] Its private key.
 * @property {string} [token] A bearer token.
 */

/**
 * @typedef {object} Registration
 * @property {string} [name] The vector's name; the file's stem if left out.
 * @property {string} [model] The model that it was made for.
 * @property {boolean} [validateOnly] Whether to check everything and change nothing.
 */

export class HotwireClient {
  /**
   * @param {string} address `unix:PATH` or `tls://HOST:PORT`.
   * @param {Credentials & { timeoutMs?: number }} [options]
   */
  constructor(address, { timeoutMs = DEFAULT_TIMEOUT_MS, ...shown } = {}) {
    const { target, credentials } = channelOf(address, shown);
    this._timeoutMs = timeoutMs;
    this._stub = new (service())(target, credentials);
  }

  /**
   * Registers a safetensors file; resolves once every node uses it, or shortly before the timeout
   * with `converged` false.
   * @param {string} path
   * @param {Registration} [options]
   * @returns {Promise<any>} A RegisterVectorResponse.
   */
  async register(path, { name = basename(path, ".safetensors"), model = "", validateOnly = false } = {}) {
    const data = await readFile(path);
    const header = {
      name,
      model,
      size_bytes: data.length,
      sha256: createHash("sha256").update(data).digest("hex"),
      validate_only: validateOnly,
    };
    return new Promise((resolve, reject) => {
      const call = this._stub.RegisterVector(this._deadline(), settle(resolve, reject));
      // What ends the upload is told to the callback.
      sent(call, header, data).catch(() => {});
    });
  }

  /**
   * Returns all vectors in the order of their names.
   * @returns {Promise<any[]>}
   */
  async list() {
    const vectors = [];
    let token = "";
    do {
      const page = await this._call("ListVectors", { page_size: PAGE_SIZE, page_token: token });
      vectors.push(...page.vectors);
      token = page.next_page_token;
    } while (token);
    return vectors;
  }

  /**
   * Deletes a name.
   * @param {string} name
   * @returns {Promise<any>} A DeleteVectorResponse.
   */
  delete(name) {
    return this._call("DeleteVector", { name });
  }

  /**
   * Returns the policy in force.
   * @returns {Promise<any>}
   */
  async policy() {
    return (await this._call("GetPolicy", {})).policy;
  }

  /**
   * Sets the given fields of the policy, and no others.
   * @param {Record<string, any>} fields By their names in the proto.
   * @returns {Promise<any>} A SetPolicyResponse.
   */
  setPolicy(fields) {
    const paths = Object.keys(fields);
    if (paths.length === 0) {
      throw new TypeError("no field is named");
    }
    return this._call("SetPolicy", { policy: fields, update_mask: { paths } });
  }

  /**
   * Yields counters of the daemon and of every engine, until the loop is left.
   * @param {number} [intervalSeconds] From 0.1 to 3600.
   * @returns {AsyncGenerator<any, void, void>}
   */
  async *watchStats(intervalSeconds = 1) {
    const call = this._stub.WatchStats({ interval_seconds: intervalSeconds });
    try {
      for await (const sample of call) {
        yield sample.stats;
      }
    } catch (error) {
      throw HotwireError.of(error);
    } finally {
      call.cancel();
    }
  }

  /** Closes the connection; calls under way are cancelled. */
  close() {
    this._stub.close();
  }

  /**
   * @param {string} method
   * @param {object} request
   * @returns {Promise<any>}
   */
  _call(method, request) {
    return new Promise((resolve, reject) => {
      this._stub[method](request, this._deadline(), settle(resolve, reject));
    });
  }

  _deadline() {
    return { deadline: Date.now() + this._timeoutMs };
  }
}

/**
 * @param {(value: any) => void} resolve
 * @param {(error: Error) => void} reject
 */
function settle(resolve, reject) {
  return (/** @type {any} */ error, /** @type {any} */ response) =>
    error ? reject(HotwireError.of(error)) : resolve(response);
}

/**
 * Sends the header and then the chunks, no faster than they are taken.
 * @param {any} call
 * @param {object} header
 * @param {Buffer} data
 */
async function sent(call, header, data) {
  call.write({ header });
  for (let at = 0; at < data.length; at += CHUNK_BYTES) {
    if (!call.write({ chunk: data.subarray(at, at + CHUNK_BYTES) })) {
      await once(call, "drain");
    }
  }
  call.end();
}

/**
 * @param {string} address
 * @param {Credentials} shown
 */
function channelOf(address, { ca, cert, key, token }) {
  if (address.startsWith("unix:")) {
    return { target: address, credentials: grpc.credentials.createInsecure() };
  }
  if (!address.startsWith("tls://")) {
    throw new TypeError(`${address} is no address: give unix:PATH or tls://HOST:PORT`);
  }
  const tls = grpc.credentials.createSsl(ca ?? null, key ?? null, cert ?? null);
  const credentials = token ? grpc.credentials.combineChannelCredentials(tls, bearer(token)) : tls;
  return { target: address.slice("tls://".length), credentials };
}

/** @param {string} token */
function bearer(token) {
  return grpc.credentials.createFromMetadataGenerator((_, callback) => {
    const metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${token}`);
    callback(null, metadata);
  });
}

/** @returns {any} The constructor of the service's stub. */
function service() {
  if (PROTO_DIR === undefined) {
    throw new Error(`the API's .proto files are neither in ${HERE}/proto nor in the repository`);
  }
  const definition = protoLoader.loadSync("hotwired/v1/steering_service.proto", {
    includeDirs: [PROTO_DIR],
    keepCase: true,
    longs: String,
    enums: String,
    defaults: true,
    oneofs: true,
  });
  const loaded = /** @type {any} */ (grpc.loadPackageDefinition(definition));
  return loaded.hotwired.v1.SteeringService;
}
