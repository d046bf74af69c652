/** JSON as functions take and give it: bytes are `{"b64": …}`, and typed arrays are lists of numbers. */

export type TypedArray =
  | Uint8Array | Uint16Array | Uint32Array | Int8Array | Int16Array | Int32Array | Float32Array | Float64Array | BigInt64Array | BigUint64Array;

export function encode(value: unknown): string {
  return JSON.stringify(value, (_, v: unknown) => {
    if (v instanceof Uint8Array) return { b64: toBase64(v) };
    if (typeof v === "number" && !Number.isFinite(v)) {
      if (Number.isNaN(v)) return null; // a missing number
      throw new RangeError("an infinity has no form in JSON");
    }
    return ArrayBuffer.isView(v) && !(v instanceof DataView) ? Array.from(v as Float32Array) : v;
  });
}

export function decode(text: string): unknown {
  return JSON.parse(text, (_, v: unknown) => {
    if (typeof v !== "object" || v === null || !("b64" in v)) return v;
    return typeof v.b64 === "string" && Object.keys(v).length === 1 ? fromBase64(v.b64) : v;
  });
}

function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000)); // arguments are bounded
  return btoa(text);
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

const constructors = {
  bool: Uint8Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, int8: Int8Array, int16: Int16Array,
  int32: Int32Array, int64: BigInt64Array, float32: Float32Array, float64: Float64Array, bytes: Uint8Array, string: Uint8Array,
};

/** The array of an output's bytes. Types that JavaScript has no array for are bytes. */
export function toArray(body: ArrayBuffer, dtype: string): TypedArray {
  return new (constructors[dtype as keyof typeof constructors] ?? Uint8Array)(body);
}
