/* The tensor types on the GPU: how a lane of a warp takes its piece of a row apart.
 *
 * A row is cut into pieces of PIECE elements; lane l of a warp takes pieces l, l + 32, ...  Types
 * of floats (FLOATS) have unpack(), which gives a piece's elements, and one(), for a row that need
 * not be whole pieces.  A quantised type's unpack() gives struct quants: a piece is two runs of 16
 * elements, at place(piece) and SECOND further on, and element i of run r is scale[r] * (byte i of
 * bytes[r] - BIAS) - minimum[r]    (no minima where MINIMA is 0) The bytes are for dot products of
 * integers (cuda_fixed.cuh).  Rows may lie in any memory, at a multiple of 2; blocks of whole 16
 * bytes (WHOLE) are read faster where the row lies so too.
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
	const uint32_t *word = (const uint32_t *)(at - ((uintptr_t)at & 2));
	uint32_t shift = ((uintptr_t)at & 2) * 8;
	uint32_t a = word[0], b = word[1], c = word[2], d = word[3];
	uint32_t e = word[shift ? 4 : 3];

	return make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift),
			  __funnelshift_r(c, d, shift), __funnelshift_r(d, e, shift));
}

template <bool WHOLE>
static __device__ __forceinline__ uint4
load16(const uint8_t *at)
{
	if constexpr (WHOLE)
		return *(const uint4 *)at;
	else
		return load16_even(at);
}

static __device__ __forceinline__ float
load_half(const uint8_t *at)
{
	return __half2float(__ushort_as_half(*(const unsigned short *)at));
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

static __device__ __forceinline__ uint32_t
word_of(const uint4 &v, int i)
{
	return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

struct quants {
	uint32_t bytes[2][4];
	float scale[2], minimum[2];
};

struct f32 {
	enum { TYPE = 0, FLOATS = 1, PIECE = 4, BLOCK = 1, BYTES = 4, WHOLE = 1 };
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		uint4 v = load16<WIDE>(row + 16 * piece);
#pragma unroll
		for (int i = 0; i < 4; i++)
			out[i] = __uint_as_float(word_of(v, i));
	}
	static __device__ __forceinline__ float
	one(const uint8_t *row, uint32_t i)
	{
		const unsigned short *at = (const unsigned short *)(row + 4 * i);

		return __uint_as_float(at[0] | (uint32_t)at[1] << 16);
	}
};

struct f16 {
	enum { TYPE = 1, FLOATS = 1, PIECE = 8, BLOCK = 1, BYTES = 2, WHOLE = 1 };
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		uint4 v = load16<WIDE>(row + 16 * piece);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			out[2 * i] = low_half(word_of(v, i));
			out[2 * i + 1] = high_half(word_of(v, i));
		}
	}
	static __device__ __forceinline__ float
	one(const uint8_t *row, uint32_t i)
	{
		return load_half(row + 2 * i);
	}
};

struct bf16 {
	enum { TYPE = 30, FLOATS = 1, PIECE = 8, BLOCK = 1, BYTES = 2, WHOLE = 1 };
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, float *out)
	{
		uint4 v = load16<WIDE>(row + 16 * piece);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			out[2 * i] = __uint_as_float(word_of(v, i) << 16);
			out[2 * i + 1] = __uint_as_float(word_of(v, i) & 0xffff0000u);
		}
	}
	static __device__ __forceinline__ float
	one(const uint8_t *row, uint32_t i)
	{
		return __uint_as_float((uint32_t) * (const unsigned short *)(row + 2 * i) << 16);
	}
};

/* 2 bytes scale, 32 signed bytes. */
struct q8_0 {
	enum { TYPE = 8, FLOATS = 0, PIECE = 32, SECOND = 16, BLOCK = 32, BYTES = 34 };
	enum { BIAS = 128, MINIMA = 0, WHOLE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece * PIECE;
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, struct quants &q)
	{
		const uint8_t *block = row + piece * BYTES;
#pragma unroll
		for (int r = 0; r < 2; r++) {
			uint4 v = load16_even(block + 2 + 16 * r);

			q.scale[r] = load_half(block);
#pragma unroll
			for (int i = 0; i < 4; i++)
				q.bytes[r][i] = word_of(v, i) ^ 0x80808080u;
		}
	}
};

/* 2 bytes scale, 32 nibbles: elements 0..15 low, 16..31 high. */
struct q4_0 {
	enum { TYPE = 2, FLOATS = 0, PIECE = 32, SECOND = 16, BLOCK = 32, BYTES = 18 };
	enum { BIAS = 8, MINIMA = 0, WHOLE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece * PIECE;
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, struct quants &q)
	{
		const uint8_t *block = row + piece * BYTES;
		uint4 v = load16_even(block + 2);

		q.scale[0] = q.scale[1] = load_half(block);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			q.bytes[0][i] = word_of(v, i) & 0x0f0f0f0fu;
			q.bytes[1][i] = word_of(v, i) >> 4 & 0x0f0f0f0fu;
		}
	}
};

/* The 6-bit scales and minima of two sub-blocks, 2 * group and the next, from a K block's 12 bytes
 * of them, times the block's d and dmin.  Lanes differ in `group`: no branch. */
static __device__ __forceinline__ void
k_scales(const uint4 &head, uint32_t group, struct quants &q)
{
	float d = low_half(head.x), dmin = high_half(head.x);
	uint32_t shift = 16 * (group % 2);
	uint32_t a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
	uint32_t scales = (c & 0x0f0fu) | (a >> 2 & 0x3030u);
	uint32_t minima = (c >> 4 & 0x0f0fu) | (b >> 2 & 0x3030u);

	scales = group < 2 ? a & 0x3f3fu : scales;
	minima = group < 2 ? b & 0x3f3fu : minima;
	q.scale[0] = d * (float)(uint8_t)scales;
	q.scale[1] = d * (float)(uint8_t)(scales >> 8);
	q.minimum[0] = dmin * (float)(uint8_t)minima;
	q.minimum[1] = dmin * (float)(uint8_t)(minima >> 8);
}

/* 2 + 2 bytes scales, 12 bytes of 6-bit scales, 256 nibbles: of a block's four groups of 64
 * elements the low nibbles of 32 bytes are the first 32.  A piece: 16 of these bytes. */
struct q4_k {
	enum { TYPE = 12, FLOATS = 0, PIECE = 32, SECOND = 32, BLOCK = 256, BYTES = 144 };
	enum { BIAS = 0, MINIMA = 1, WHOLE = 1 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece / 2 * 64 + piece % 2 * 16;
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, struct quants &q)
	{
		const uint8_t *block = row + piece / 8 * BYTES;
		uint4 head = load16<WIDE>(block);
		uint4 v = load16<WIDE>(block + 16 + 16 * (piece % 8));

		k_scales(head, piece % 8 / 2, q);
		/* High nibbles stay where they are: sixteenfold. */
		q.scale[1] *= 0.0625f;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			q.bytes[0][i] = word_of(v, i) & 0x0f0f0f0fu;
			q.bytes[1][i] = word_of(v, i) & 0xf0f0f0f0u;
		}
	}
};

static __device__ __forceinline__ uint32_t
rotate_right(uint32_t word, uint32_t by)
{
	return __funnelshift_r(word, word, by);
}

/* As Q4_K, with 32 bytes of fifth bits before the nibbles. */
struct q5_k {
	enum { TYPE = 13, FLOATS = 0, PIECE = 32, SECOND = 32, BLOCK = 256, BYTES = 176 };
	enum { BIAS = 0, MINIMA = 1, WHOLE = 1 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return q4_k::place(piece);
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, struct quants &q)
	{
		const uint8_t *block = row + piece / 8 * BYTES;
		uint32_t group = piece % 8 / 2;
		uint4 head = load16<WIDE>(block);
		uint4 fifth = load16<WIDE>(block + 16 + 16 * (piece % 2));
		uint4 v = load16<WIDE>(block + 48 + 16 * (piece % 8));

		k_scales(head, group, q);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t word = word_of(v, i), bits = word_of(fifth, i);

			q.bytes[0][i] = (word & 0x0f0f0f0fu) |
					(rotate_right(bits, 2 * group - 4) & 0x10101010u);
			q.bytes[1][i] = (word >> 4 & 0x0f0f0f0fu) |
					(rotate_right(bits, 2 * group - 3) & 0x10101010u);
		}
	}
};

/* 128 bytes of low nibbles, 64 of two high bits, 16 signed scales, 2 bytes scale.  A piece: 16
 * bytes of a half block's 64 of nibbles: 16 elements in the low ones, those 64 further on in the
 * high. */
struct q6_k {
	enum { TYPE = 14, FLOATS = 0, PIECE = 32, SECOND = 64, BLOCK = 256, BYTES = 210 };
	enum { BIAS = 32, MINIMA = 0, WHOLE = 0 };
	static __device__ __forceinline__ uint32_t
	place(uint32_t piece)
	{
		return piece / 4 * 128 + piece % 4 * 16;
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *row, uint32_t piece, struct quants &q)
	{
		const uint8_t *block = row + piece / 8 * BYTES;
		uint32_t half = piece % 8 / 4, part = piece % 4;
		uint32_t shift = 2 * (part / 2);
		uint4 v = load16_even(block + 16 * (piece % 8));
		uint4 top = load16_even(block + 128 + 32 * half + 16 * (part % 2));
		const int8_t *scales = (const int8_t *)block + 192 + 8 * half + part;
		float d = load_half(block + 208);

		q.scale[0] = d * (float)scales[0];
		q.scale[1] = d * (float)scales[4];
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t word = word_of(v, i), bits = word_of(top, i);

			q.bytes[0][i] =
			    (word & 0x0f0f0f0fu) | (rotate_right(bits, shift - 4) & 0x30303030u);
			q.bytes[1][i] =
			    (word >> 4 & 0x0f0f0f0fu) | (rotate_right(bits, shift) & 0x30303030u);
		}
	}
};

#endif
