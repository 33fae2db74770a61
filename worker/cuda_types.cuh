/* The tensor types on the GPU: how a lane of a warp unpacks its piece of a row.
 *
 * A row is cut into pieces of PIECE elements; lane l of a warp takes pieces l, l + 32, ...  A
 * piece's elements lie in runs of RUN, the first at place(piece), the next SECOND further on: so a
 * lane reads 16 bytes in one go, whatever the type's order of nibbles.  unpack() gives the elements
 * of all runs in turn, one() a single element where a row need not be whole pieces (LOOSE).
 *
 * A new type is one struct and one line in CUDA_TYPES.  Layouts: ggml's block formats. */
#ifndef HEARTH_WORKER_CUDA_TYPES_CUH
#define HEARTH_WORKER_CUDA_TYPES_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#define CUDA_TYPES(X) X(f32) X(f16) X(bf16) X(q8_0) X(q4_0) X(q4_k) X(q5_k) X(q6_k)

/* 16 bytes at an address that is a multiple of 2.  Only whole words that hold a byte asked for are
 * read, so no read leaves the 4 bytes around an end of the tensor. */
static __device__ __forceinline__ uint4
load16_even(const uint8_t *at)
{
	const uint32_t *word = (const uint32_t *)((uintptr_t)at & ~(uintptr_t)3);
	uint32_t shift = ((uintptr_t)at & 2) * 8;
	uint32_t a = __ldg(word), b = __ldg(word + 1), c = __ldg(word + 2), d = __ldg(word + 3);
	uint32_t e = __ldg(word + (shift ? 4 : 3));

	return make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift),
			  __funnelshift_r(c, d, shift), __funnelshift_r(d, e, shift));
}

/* The same for types whose blocks are whole 16 bytes: wide unless the tensor itself lies oddly. */
static __device__ __forceinline__ uint4
load16(const uint8_t *at)
{
	if (((uintptr_t)at & 15) == 0)
		return __ldg((const uint4 *)at);
	return load16_even(at);
}

static __device__ __forceinline__ float
load_half(const uint8_t *at)
{
	return __half2float(__ushort_as_half(__ldg((const unsigned short *)at)));
}

static __device__ __forceinline__ float
low_half(uint32_t word)
{
	return __half2float(__ushort_as_half((unsigned short)(word & 0xffff)));
}

static __device__ __forceinline__ float
high_half(uint32_t word)
{
	return __half2float(__ushort_as_half((unsigned short)(word >> 16)));
}

/* out[i] = scale * (byte i of `bytes` - bias) + shift.  The byte becomes the low bits of 2^23,
 * which is exact and cheaper than a conversion. */
static __device__ __forceinline__ void
scale_bytes(uint32_t bytes, float bias, float scale, float shift, float *out)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		uint32_t bits = __byte_perm(bytes, 0x4b000000u, 0x7540u | i);

		out[i] = fmaf(__uint_as_float(bits) - (8388608.0f + bias), scale, shift);
	}
}

static __device__ __forceinline__ uint32_t
word_of(const uint4 &v, int i)
{
	return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

struct f32 {
	enum { TYPE = 0, PIECE = 4, RUN = 4, SECOND = 0, BLOCK = 1, BYTES = 4, LOOSE = 1 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece * PIECE;
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		uint4 v = load16(row + 16ull * piece);
#pragma unroll
		for (int i = 0; i < 4; i++)
			out[i] = __uint_as_float(word_of(v, i));
	}
	static __device__ __forceinline__ float
	one(const uint8_t *row, uint32_t i)
	{
		const uint8_t *at = row + 4ull * i;
		uint32_t low = __ldg((const unsigned short *)at);
		uint32_t high = __ldg((const unsigned short *)(at + 2));

		return __uint_as_float(low | high << 16);
	}
};

struct f16 {
	enum { TYPE = 1, PIECE = 8, RUN = 8, SECOND = 0, BLOCK = 1, BYTES = 2, LOOSE = 1 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece * PIECE;
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		uint4 v = load16(row + 16ull * piece);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			out[2 * i] = low_half(word_of(v, i));
			out[2 * i + 1] = high_half(word_of(v, i));
		}
	}
	static __device__ __forceinline__ float
	one(const uint8_t *row, uint32_t i)
	{
		return load_half(row + 2ull * i);
	}
};

struct bf16 {
	enum { TYPE = 30, PIECE = 8, RUN = 8, SECOND = 0, BLOCK = 1, BYTES = 2, LOOSE = 1 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece * PIECE;
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		uint4 v = load16(row + 16ull * piece);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			out[2 * i] = __uint_as_float(word_of(v, i) << 16);
			out[2 * i + 1] = __uint_as_float(word_of(v, i) & 0xffff0000u);
		}
	}
	static __device__ __forceinline__ float
	one(const uint8_t *row, uint32_t i)
	{
		return __uint_as_float((uint32_t)__ldg((const unsigned short *)row + i) << 16);
	}
};

/* 2 bytes scale, 32 signed bytes. */
struct q8_0 {
	enum { TYPE = 8, PIECE = 16, RUN = 16, SECOND = 0, BLOCK = 32, BYTES = 34, LOOSE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece * PIECE;
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		const uint8_t *block = row + (uint64_t)(piece / 2) * BYTES;
		uint4 v = load16_even(block + 2 + 16 * (piece % 2));
		float scale = load_half(block);
#pragma unroll
		for (int i = 0; i < 4; i++)
			scale_bytes(word_of(v, i) ^ 0x80808080u, 128, scale, 0, out + 4 * i);
	}
};

/* 2 bytes scale, 32 nibbles: elements 0..15 low, 16..31 high. */
struct q4_0 {
	enum { TYPE = 2, PIECE = 32, RUN = 16, SECOND = 16, BLOCK = 32, BYTES = 18, LOOSE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece * PIECE;
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		const uint8_t *block = row + (uint64_t)piece * BYTES;
		uint4 v = load16_even(block + 2);
		float scale = load_half(block);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t word = word_of(v, i);

			scale_bytes(word & 0x0f0f0f0fu, 8, scale, 0, out + 4 * i);
			scale_bytes(word >> 4 & 0x0f0f0f0fu, 8, scale, 0, out + 16 + 4 * i);
		}
	}
};

/* The 6-bit scale and minimum of one of a K block's eight sub-blocks, from its 12 bytes s. */
static __device__ __forceinline__ void
k_scale(uint32_t s0, uint32_t s1, uint32_t s2, uint32_t sub, float *scale, float *minimum)
{
	uint32_t shift = 8 * (sub % 4);

	if (sub < 4) {
		*scale = (float)(s0 >> shift & 63);
		*minimum = (float)(s1 >> shift & 63);
	} else {
		*scale = (float)((s2 >> shift & 15) | (s0 >> shift >> 6 & 3) << 4);
		*minimum = (float)((s2 >> shift >> 4 & 15) | (s1 >> shift >> 6 & 3) << 4);
	}
}

/* A piece of Q4_K or Q5_K: 16 of the 32 bytes of one of a block's four groups of 64 elements, whose
 * low nibbles are 16 elements and whose high nibbles those 32 further on.  `head` is the block's
 * first 16 bytes, `fifth` the bytes with the fifth bits (Q4_K: none). */
static __device__ __forceinline__ void
k_unpack(const uint4 &head, const uint4 &v, const uint4 &fifth, uint32_t group, float *out)
{
	float d = low_half(head.x), dmin = high_half(head.x);
	float scale0, minimum0, scale1, minimum1;

	k_scale(head.y, head.z, head.w, 2 * group, &scale0, &minimum0);
	k_scale(head.y, head.z, head.w, 2 * group + 1, &scale1, &minimum1);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		uint32_t word = word_of(v, i), bits = word_of(fifth, i) >> (2 * group);
		uint32_t low = (word & 0x0f0f0f0fu) | (bits & 0x01010101u) << 4;
		uint32_t high = (word >> 4 & 0x0f0f0f0fu) | (bits >> 1 & 0x01010101u) << 4;

		scale_bytes(low, 0, d * scale0, -(dmin * minimum0), out + 4 * i);
		scale_bytes(high, 0, d * scale1, -(dmin * minimum1), out + 16 + 4 * i);
	}
}

/* 2 + 2 bytes scales, 12 bytes of 6-bit scales, 256 nibbles. */
struct q4_k {
	enum { TYPE = 12, PIECE = 32, RUN = 16, SECOND = 32, BLOCK = 256, BYTES = 144, LOOSE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece / 2 * 64 + piece % 2 * 16;
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		const uint8_t *block = row + (uint64_t)(piece / 8) * BYTES;
		uint4 head = load16(block);
		uint4 v = load16(block + 16 + 16 * (piece % 8));

		k_unpack(head, v, make_uint4(0, 0, 0, 0), piece % 8 / 2, out);
	}
};

/* As Q4_K, with 32 bytes of fifth bits before the nibbles. */
struct q5_k {
	enum { TYPE = 13, PIECE = 32, RUN = 16, SECOND = 32, BLOCK = 256, BYTES = 176, LOOSE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return q4_k::place(piece);
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		const uint8_t *block = row + (uint64_t)(piece / 8) * BYTES;
		uint4 head = load16(block);
		uint4 fifth = load16(block + 16 + 16 * (piece % 2));
		uint4 v = load16(block + 48 + 16 * (piece % 8));

		k_unpack(head, v, fifth, piece % 8 / 2, out);
	}
};

/* 128 bytes of low nibbles, 64 of two high bits, 16 signed scales, 2 bytes scale.  A piece: 16
 * bytes of a half block's 64 of nibbles: 16 elements in the low ones, those 64 further on in the
 * high. */
struct q6_k {
	enum { TYPE = 14, PIECE = 32, RUN = 16, SECOND = 64, BLOCK = 256, BYTES = 210, LOOSE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece / 4 * 128 + piece % 4 * 16;
	}
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		const uint8_t *block = row + (uint64_t)(piece / 8) * BYTES;
		uint32_t half = piece % 8 / 4, part = piece % 4;
		uint32_t shift = 2 * (part / 2);
		uint4 v = load16_even(block + 16 * (piece % 8));
		uint4 top = load16_even(block + 128 + 32 * half + 16 * (part % 2));
		const signed char *scales = (const signed char *)block + 192 + 8 * half + part;
		float d = load_half(block + 208);
		float scale0 = d * (float)__ldg(scales), scale1 = d * (float)__ldg(scales + 4);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t word = word_of(v, i), bits = word_of(top, i) >> shift;
			uint32_t low = (word & 0x0f0f0f0fu) | (bits & 0x03030303u) << 4;
			uint32_t high = (word >> 4 & 0x0f0f0f0fu) | (bits >> 4 & 0x03030303u) << 4;

			scale_bytes(low, 32, scale0, 0, out + 4 * i);
			scale_bytes(high, 32, scale1, 0, out + 16 + 4 * i);
		}
	}
};

#endif
