// @ts-check
/** What a call can fail with, read from google.rpc.Status as the daemon sends it. */

import grpc from "@grpc/grpc-js";
import protobuf from "protobufjs";

const DOMAIN = "hotwired";
const DETAILS_KEY = "grpc-status-details-bin";

// The parts of google.rpc that are read; what else a message has is skipped.
const { root } = protobuf.parse(
  `syntax = "proto3";
   message Any { string type_url = 1; bytes value = 2; }
   message Status { repeated Any details = 3; }
   message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
   message BadRequest { repeated Violation field_violations = 1; }
   message Violation { string field = 1; string description = 2; }
   message RetryInfo { Duration retry_delay = 1; }
   message Duration { int64 seconds = 1; int32 nanos = 2; }`,
  { keepCase: true },
);

/**
 * A failed call.
 *
 * `code`: the name of the gRPC status, such as "NOT_FOUND". `reason`: why, such as
 * "VECTOR_NOT_FOUND"; the code's name if the daemon did not say. `metadata`: what varies in the
 * message. `violations`: `{ field, description }` of each field at fault. `retrySeconds`: when to
 * try again, if that is known.
 */
export class HotwireError extends Error {
  /**
   * @param {string} code
   * @param {string} reason
   * @param {string} message
   */
  constructor(code, reason, message) {
    super(message);
    this.name = "HotwireError";
    this.code = code;
    this.reason = reason;
    /** @type {Record<string, string>} */
    this.metadata = {};
    /** @type {{ field: string, description: string }[]} */
    this.violations = [];
    /** @type {number | undefined} */
    this.retrySeconds = undefined;
  }

  /**
   * Returns the error of a call that gRPC says has failed.
   * @param {any} error
   */
  static of(error) {
    const code = grpc.status[error.code] ?? "UNKNOWN";
    const { ErrorInfo, BadRequest, RetryInfo } = detailsOf(error);
    const ours = ErrorInfo?.domain === DOMAIN;
    const made = new HotwireError(code, ours ? ErrorInfo.reason : code, error.details ?? error.message);
    if (ours) {
      made.metadata = { ...ErrorInfo.metadata };
      made.violations = (BadRequest?.field_violations ?? []).map((/** @type {any} */ violation) => ({
        field: violation.field,
        description: violation.description,
      }));
      made.retrySeconds = RetryInfo && secondsOf(RetryInfo.retry_delay);
    }
    return made;
  }
}

/**
 * Returns the details of a status by the names of their types.
 * @param {any} error
 * @returns {Record<string, any>}
 */
function detailsOf(error) {
  const [raw] = error.metadata?.get(DETAILS_KEY) ?? [];
  /** @type {Record<string, any>} */
  const found = {};
  for (const { type_url, value } of raw ? decoded("Status", raw).details : []) {
    const type = type_url.replace(/^.*[/.]/, "");
    if (root.get(type)) {
      found[type] = decoded(type, value);
    }
  }
  return found;
}

/**
 * @param {string} type
 * @param {Uint8Array} bytes
 * @returns {any}
 */
function decoded(type, bytes) {
  return root.lookupType(type).decode(bytes);
}

/** @param {any} duration */
function secondsOf(duration) {
  return Number(duration?.seconds ?? 0) + (duration?.nanos ?? 0) / 1e9;
}
