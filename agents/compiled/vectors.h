/* Vectors of whatever width the processor has, and products of small matrices. Written for no processor: the compiler
makes the instructions.

Invariant: a number of a product is one sum in one order, whatever the other rows and columns are.
*/

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
enum { WIDTH = 16, DOWN = 6, ACROSS = 4 };
#elif defined(__AVX__)
enum { WIDTH = 8, DOWN = 6, ACROSS = 2 };
#else
enum { WIDTH = 4, DOWN = 6, ACROSS = 4 };
#endif
/* Numbers of a vector; rows and vectors of a tile, whose sums have to fit the registers. */

enum { PANEL = WIDTH * ACROSS, ROWS = 24, DEEP = 128 };
/* Columns of a tile; rows that are taken at once, and how many of the inner side of a product. */

#define INLINE static inline __attribute__((always_inline))

typedef ptrdiff_t count;
typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef unsigned bits __attribute__((vector_size(4 * WIDTH)));
typedef float loose __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

INLINE vec load(const float *from) { return *(const loose *)from; }
INLINE void store(float *to, vec x) { *(loose *)to = x; }
INLINE vec all(float x) { return x - (vec){0}; }
INLINE vec larger(vec a, vec b) {
    bits which = (bits)(a > b);
    return (vec)(((bits)a & which) | ((bits)b & ~which));
}
INLINE vec smaller(vec a, vec b) { return -larger(-a, -b); }
INLINE count least(count a, count b) { return a < b ? a : b; }
INLINE count most(count a, count b) { return a > b ? a : b; }
INLINE count whole(count n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

/* 2 to the power of x, for x up to 126; exactly 0 where it would be no normal number, and NaN where x is. */
INLINE vec power(vec x) {
    const vec round = all(12582912.0f); /* 1.5 * 2^23: what is added to it loses its fraction */
    vec integer = x + round, f = x - (integer - round);
    vec y = all(1.52527338e-5f); /* (ln 2)^k / k!, from k = 7 */
    y = y * f + 1.54035304e-4f;
    y = y * f + 1.33335581e-3f;
    y = y * f + 9.61812911e-3f;
    y = y * f + 5.55041087e-2f;
    y = y * f + 2.40226507e-1f;
    y = y * f + 6.93147181e-1f;
    y = y * f + 1.0f;
    return (vec)(((bits)y + ((bits)integer << 23)) & ~(bits)(x <= all(-126.0f)));
}

/* -- products ----------------------------------------------------------------------------------------------------- */

/* C[i, j] (+)= sum over p of A[i, p] B[p, j], where C has M rows and N vectors. */
INLINE void tile(const int M, const int N, const int add, count inner, const float *a, count a_i, count a_p,
                 const float *b, count b_p, float *c, count c_i) {
    vec sum[DOWN][ACROSS];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) sum[i][j] = add ? load(c + i * c_i + j * WIDTH) : all(0);
    for (count p = 0; p < inner; p++, a += a_p, b += b_p) {
        vec row[ACROSS];
        for (int j = 0; j < N; j++) row[j] = load(b + j * WIDTH);
        for (int i = 0; i < M; i++) {
            vec x = all(a[i * a_i]);
            for (int j = 0; j < N; j++) sum[i][j] += x * row[j];
        }
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) store(c + i * c_i + j * WIDTH, sum[i][j]);
}

#define TILE(M, N) \
    case M * 8 + N: tile(M, N, add, inner, a, a_i, a_p, b, b_p, c, c_i); break;
#if defined(__AVX__) && !defined(__AVX512F__)
#define TILES(M) TILE(M, 1) TILE(M, 2)
#else
#define TILES(M) TILE(M, 1) TILE(M, 2) TILE(M, 3) TILE(M, 4)
#endif

/* Sizes that the compiler knows keep the sums of a tile in registers. */
#define TILED(NAME, ADD)                                                                                               \
    static void NAME(count m, count n, count inner, const float *a, count a_i, count a_p, const float *b, count b_p,   \
                     float *c, count c_i) {                                                                            \
        const int add = ADD;                                                                                           \
        switch (m * 8 + n) { TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) }                                   \
    }
TILED(set, 0)
TILED(added, 1)

/* C (+)= A B with n columns, rounded up to whole vectors: what is beyond them is overwritten with anything. */
static void product(int add, count m, count n, count inner, const float *a, count a_i, count a_p, const float *b,
                    count b_p, float *c, count c_i) {
    count vectors = whole(n) / WIDTH;
    for (count j = 0; j < vectors; j += ACROSS)
        for (count i = 0; i < m; i += DOWN)
            (add ? added : set)(least(DOWN, m - i), least(ACROSS, vectors - j), inner, a + i * a_i, a_i, a_p,
                                b + j * WIDTH, b_p, c + i * c_i + j * WIDTH, c_i);
}

/* -- attention ---------------------------------------------------------------------------------------------------- */

static const float LOG2_E = 1.44269504f;

/* Scores become 2 to their power, in parts of the whole that is returned; *norm is the power of 2 of that whole. */
static float softened(float *score, count low, count high, count end, float scale, float *norm) {
    for (count j = 0; j < low; j++) score[j] = -INFINITY;
    for (count j = high; j < whole(end); j++) score[j] = -INFINITY;
    vec tops = all(-INFINITY), sums = all(0);
    for (count j = 0; j < end; j += WIDTH) tops = larger(load(score + j), tops);
    float top = tops[0], sum = 0;
    for (int j = 1; j < WIDTH; j++) top = tops[j] > top ? tops[j] : top;
    for (count j = 0; j < end; j += WIDTH) {
        vec x = power((load(score + j) - top) * scale);
        sums += x;
        store(score + j, x);
    }
    for (int j = 0; j < WIDTH; j++) sum += sums[j];
    *norm = top * scale + log2f(sum);
    return sum;
}
