/* The tensor types on the GPU: how a lane of a warp takes its piece of a row apart.
 *
 * Types of floats (FLOATS) are cut into pieces of PIECE elements; unpack() gives a piece's, one() a
 * single element, for a row that need not be whole pieces.
 *
 * Rows of quantised types are cut into lengths of 256 elements (LENGTH bytes), and these into eight
 * parts, two runs of 16 elements each, at place(part) and SECOND further on.  A lane has the same
 * part of one length after the other: what it needs to know of its part is its `lane`.  Element i
 * of run r is d * scale[r] * (byte i of bytes[r] / (r == 1 ? TIMES : 1) - BIAS) - dmin * minimum[r]
 * with minima where MINIMA is 1, and scales other than 1 where SCALES is.  The bytes are for dot
 * products of integers (cuda_fixed.cuh).
 *
 * Rows may lie in any memory, at a multiple of 2; types of whole 16 bytes (WHOLE) are read faster
 * (WIDE) where the row lies so too.  A new type is one struct and one line in CUDA_TYPES.  Layouts:
 * ggml's block formats. */
#ifndef HEARTH_WORKER_CUDA_TYPES_CUH
#define HEARTH_WORKER_CUDA_TYPES_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#define CUDA_TYPES(X) X(f32) X(f16) X(bf16) X(q8_0) X(q4_0) X(q4_k) X(q5_k) X(q6_k)

/* 16 bytes at a multiple of 2.  Only whole words that hold a byte asked for are read, so no read
 * leaves the 4 bytes around an end of the tensor. */
static __device__ __forceinline__ uint4
load16_even(const uint8_t *at)
{
	uint32_t odd = (uint32_t)(uintptr_t)at & 2, shift = odd * 8;
	const uint8_t *from = at - odd;
	const uint32_t *word = (const uint32_t *)from;
	uint32_t a = word[0], b = word[1], c = word[2], d = word[3];
	uint32_t e = *(const uint32_t *)(from + 12 + 2 * odd);

	return make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift),
			  __funnelshift_r(c, d, shift), __funnelshift_r(d, e, shift));
}

template <bool WIDE>
static __device__ __forceinline__ uint4
load16(const uint8_t *at)
{
	if constexpr (WIDE)
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

/* 1: of every second block of a row.  Those lanes have of TURNS types, WIDE, the second 8 bytes of
 * a run first: weights and vector alike. */
static __device__ __forceinline__ uint32_t
turned_lane(void)
{
	return threadIdx.x / 8 % 2;
}

struct quants {
	uint32_t bytes[2][4];
	float d, dmin, scale[2], minimum[2];
};

struct f32 {
	enum { TYPE = 0, FLOATS = 1, PIECE = 4, BLOCK = 1, BYTES = 4, WHOLE = 1, TURNS = 0 };
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
	enum { TYPE = 1, FLOATS = 1, PIECE = 8, BLOCK = 1, BYTES = 2, WHOLE = 1, TURNS = 0 };
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
	enum { TYPE = 30, FLOATS = 1, PIECE = 8, BLOCK = 1, BYTES = 2, WHOLE = 1, TURNS = 0 };
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
	enum { TYPE = 8, FLOATS = 0, SECOND = 16, BLOCK = 32, BYTES = 34, LENGTH = 8 * BYTES };
	enum { BIAS = 128, TIMES = 1, SCALES = 0, MINIMA = 0, WHOLE = 0, TURNS = 0 };
	struct lane {
		uint32_t block;
	};
	static __device__ __forceinline__ uint32_t
	place(uint32_t part)
	{
		return 32 * part;
	}
	static __device__ __forceinline__ struct lane
	lane_of(uint32_t part)
	{
		return lane{ part * BYTES };
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *length, const struct lane &lane, struct quants &q)
	{
		const uint8_t *block = length + lane.block;

		q.d = load_half(block);
#pragma unroll
		for (int r = 0; r < 2; r++) {
			uint4 v = load16_even(block + 2 + 16 * r);
#pragma unroll
			for (int i = 0; i < 4; i++)
				q.bytes[r][i] = word_of(v, i) ^ 0x80808080u;
		}
	}
};

/* 2 bytes scale, 32 nibbles: elements 0..15 low, 16..31 high. */
struct q4_0 {
	enum { TYPE = 2, FLOATS = 0, SECOND = 16, BLOCK = 32, BYTES = 18, LENGTH = 8 * BYTES };
	enum { BIAS = 8, TIMES = 1, SCALES = 0, MINIMA = 0, WHOLE = 0, TURNS = 0 };
	struct lane {
		uint32_t block;
	};
	static __device__ __forceinline__ uint32_t
	place(uint32_t part)
	{
		return 32 * part;
	}
	static __device__ __forceinline__ struct lane
	lane_of(uint32_t part)
	{
		return lane{ part * BYTES };
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *length, const struct lane &lane, struct quants &q)
	{
		const uint8_t *block = length + lane.block;
		uint4 v = load16_even(block + 2);

		q.d = load_half(block);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			q.bytes[0][i] = word_of(v, i) & 0x0f0f0f0fu;
			q.bytes[1][i] = word_of(v, i) >> 4 & 0x0f0f0f0fu;
		}
	}
};

/* Byte n of a word.  It becomes the low bits of 2^23, which is exact and cheaper than a conversion.
 */
static __device__ __forceinline__ float
byte_float(uint32_t word, uint32_t n)
{
	return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7540u | n)) - 8388608.0f;
}

static __device__ __forceinline__ uint32_t
rotate_right(uint32_t word, uint32_t by)
{
	return __funnelshift_r(word, word, by);
}

/* A part of a K block's 12 bytes of 6-bit scales and minima: those of two neighbours of eight.
 * The first four lie as they are, the others in two pieces; shifts and masks instead of a branch.
 */
struct k_lane {
	uint32_t bytes; /* where the part's nibbles are */
	uint32_t low_shift, low_mask, high_shift, high_mask;
};

static __device__ __forceinline__ struct k_lane
k_lane_of(uint32_t part, uint32_t first)
{
	uint32_t group = part / 2, shift = 16 * (group % 2);

	return group < 2 ? k_lane{ first + 16 * part, 0, 0, shift, 0x3f3f }
			 : k_lane{ first + 16 * part, shift, 0x0f0f, shift + 2, 0x3030 };
}

static __device__ __forceinline__ void
k_scales(const uint4 &head, const struct k_lane &lane, struct quants &q)
{
	uint32_t scales = (head.w >> lane.low_shift & lane.low_mask) |
			  (head.y >> lane.high_shift & lane.high_mask);
	uint32_t minima = (head.w >> (lane.low_shift + 4) & lane.low_mask) |
			  (head.z >> lane.high_shift & lane.high_mask);

	q.d = low_half(head.x);
	q.dmin = high_half(head.x);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		q.scale[r] = byte_float(scales, r);
		q.minimum[r] = byte_float(minima, r);
	}
}

/* 2 + 2 bytes scales, 12 bytes of 6-bit scales, 256 nibbles: of a block's four groups of 64
 * elements the low nibbles of 32 bytes are the first 32.  A part: 16 of these bytes. */
struct q4_k {
	enum { TYPE = 12, FLOATS = 0, SECOND = 32, BLOCK = 256, BYTES = 144, LENGTH = BYTES };
	/* High nibbles stay where they are: sixteenfold. */
	enum { BIAS = 0, TIMES = 16, SCALES = 1, MINIMA = 1, WHOLE = 1, TURNS = 0 };
	using lane = struct k_lane;
	static __device__ __forceinline__ uint32_t
	place(uint32_t part)
	{
		return part / 2 * 64 + part % 2 * 16;
	}
	static __device__ __forceinline__ struct k_lane
	lane_of(uint32_t part)
	{
		return k_lane_of(part, 16);
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *length, const struct k_lane &lane, struct quants &q)
	{
		uint4 head = load16<WIDE>(length);
		uint4 v = load16<WIDE>(length + lane.bytes);

		k_scales(head, lane, q);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			q.bytes[0][i] = word_of(v, i) & 0x0f0f0f0fu;
			q.bytes[1][i] = word_of(v, i) & 0xf0f0f0f0u;
		}
	}
};

/* As Q4_K, with 32 bytes of fifth bits before the nibbles. */
struct q5_k {
	enum { TYPE = 13, FLOATS = 0, SECOND = 32, BLOCK = 256, BYTES = 176, LENGTH = BYTES };
	enum { BIAS = 0, TIMES = 1, SCALES = 1, MINIMA = 1, WHOLE = 1, TURNS = 0 };
	struct lane {
		struct k_lane k;
		uint32_t fifth, turn; /* where fifth bits are, and how far to the right of bit 4 */
	};
	static __device__ __forceinline__ uint32_t
	place(uint32_t part)
	{
		return q4_k::place(part);
	}
	static __device__ __forceinline__ struct lane
	lane_of(uint32_t part)
	{
		return lane{ k_lane_of(part, 48), 16 + 16 * (part % 2), part / 2 * 2 - 4 };
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *length, const struct lane &lane, struct quants &q)
	{
		uint4 head = load16<WIDE>(length);
		uint4 fifth = load16<WIDE>(length + lane.fifth);
		uint4 v = load16<WIDE>(length + lane.k.bytes);

		k_scales(head, lane.k, q);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t bits = rotate_right(word_of(fifth, i), lane.turn);

			q.bytes[0][i] = (word_of(v, i) & 0x0f0f0f0fu) | (bits & 0x10101010u);
			q.bytes[1][i] =
			    (word_of(v, i) >> 4 & 0x0f0f0f0fu) | (bits >> 1 & 0x10101010u);
		}
	}
};

/* 16 bytes at a multiple of 4 (odd 0), or 2 further on (odd 2), and then the second 8 of them
 * first: of lanes that have neighbouring blocks of Q6_K, 52 words and a half apart, none reads from
 * another's bank.  No words but those that hold a byte asked for are read. */
static __device__ __forceinline__ uint4
load16_turned(const uint8_t *at, uint32_t odd)
{
	const uint32_t *first = (const uint32_t *)(at + 3 * odd);
	const uint32_t *second = (const uint32_t *)(at + 8 - 5 * odd);
	uint32_t a = first[0], b = first[1], c = first[2], d = second[0], e = second[1];
	uint32_t shift = odd * 8;

	return make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift),
			  __funnelshift_r(d, e, shift), __funnelshift_r(e, a, shift));
}

/* 128 bytes of low nibbles, 64 of two high bits, 16 signed scales, 2 bytes scale.  A part: 16
 * bytes of a half block's 64 of nibbles: 16 elements in the low ones, those 64 further on in the
 * high. */
struct q6_k {
	enum { TYPE = 14, FLOATS = 0, SECOND = 64, BLOCK = 256, BYTES = 210, LENGTH = BYTES };
	enum { BIAS = 32, TIMES = 1, SCALES = 1, MINIMA = 0, WHOLE = 1, TURNS = 1 };
	struct lane {
		uint32_t bytes, top, scales; /* where they are */
		uint32_t turn;               /* high bits, to the right of bit 4 */
		uint32_t odd; /* of its blocks, where a row lies at a multiple of 4 */
	};
	static __device__ __forceinline__ uint32_t
	place(uint32_t part)
	{
		return part / 4 * 128 + part % 4 * 16;
	}
	static __device__ __forceinline__ struct lane
	lane_of(uint32_t part)
	{
		uint32_t half = part / 4, of_half = part % 4;

		return lane{ 16 * part, 128 + 32 * half + 16 * (of_half % 2),
			     192 + 8 * half + of_half, of_half / 2 * 2 - 4, turned_lane() * 2 };
	}
	template <bool WIDE>
	static __device__ __forceinline__ void
	unpack(const uint8_t *length, const struct lane &lane, struct quants &q)
	{
		const uint8_t *low = length + lane.bytes, *high = length + lane.top;
		uint4 v = WIDE ? load16_turned(low, lane.odd) : load16_even(low);
		uint4 top = WIDE ? load16_turned(high, lane.odd) : load16_even(high);
		const int8_t *scales = (const int8_t *)(length + lane.scales);

		q.d = load_half(length + 208);
		q.scale[0] = (float)scales[0];
		q.scale[1] = (float)scales[4];
#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t bits = rotate_right(word_of(top, i), lane.turn);

			q.bytes[0][i] = (word_of(v, i) & 0x0f0f0f0fu) | (bits & 0x30303030u);
			q.bytes[1][i] = (word_of(v, i) >> 4 & 0x0f0f0f0fu) |
					(rotate_right(bits, 4) & 0x30303030u);
		}
	}
};

#endif
