/*
 * Fenced Redlock: tokens, mutual exclusion, and the admission of nodes that forget. docs/redlock-proof.md says what this shows, and
 * "make model" runs it. It is independent of the code in Go, on purpose: somebody who misreads the protocol would have to do so twice.
 *
 * Attempts are numbered in the order in which they begin. A request may reach a node at any time after it was sent, or never, and may reach
 * it again. An answer may reach the attempt at any later time, or never.
 *
 *   N, K      nodes, attempts
 *   REPEAT    how many times an ask may reach a node again and take the key again
 *   RESTARTS  how many times nodes restart, with an older counter or none, and with or without their key; never a majority at a time
 *   HINTS     grants may raise the counter by more than one, differently on each node
 *   LATE      requests may reach a node when their attempt is over
 *   EXTENDS   keys that have lapsed may be taken again for a lease
 *   CLOCKS    keys stay for as long as their holder relies on them, and there are never two who do. Without it keys may be gone at
 *             any time, as clocks that jump have it, and only tokens are checked
 *
 * With one of these the protocol is wrong, and a check must fail:
 *
 *   MAXREPLY    a token is the greatest of the replies
 *   NOOWNER     a counter is raised for a key of any attempt
 *   NOCOUNTER   a counter is set to the target although it is higher
 *   RETAKEBLIND a lapsed key is taken again although the counter has passed the token
 *   VOTEATONCE  a node that restarted votes at once
 *   NOREADING   waiting without reading back
 *   NOWAITING   reading back without waiting
 *   READFIRST   reading back before the wait
 */

#ifndef N
#define N 3
#endif
#ifndef K
#define K 2
#endif
#ifndef REPEAT
#define REPEAT 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif

#define Q (N / 2 + 1)

/* Nodes. Counters begin at 1 at least, so that 0 is none. */
byte c[N];     /* counter */
byte key[N];   /* the attempt that has it, from 1; 0: it is free */
bool out[N];   /* not admitted */
byte outs;     /* how many are */
byte restarts;

/* Attempts. */
mtype = { idle, open, won, over };
mtype phase[K] = idle;
byte seen[K * N];  /* the counter that an attempt knows of, for a node where the key was its own; 0: it knows of none */
byte target[K];
byte token[K];
byte before[K];    /* the greatest token of those that were complete when it began */
byte greatest;
byte begun;

#define MINE (k + 1)
#define S(j) seen[k * N + (j)]

#if N == 3
#define SUM(f) (f(0) + f(1) + f(2))
#else
#define SUM(f) (f(0) + f(1) + f(2) + f(3) + f(4))
#endif
#define GRANTED(j) (S(j) != 0)
#define AGREES(j) (S(j) == target[k])
#define REACHED(j) (S(j) != 0 && S(j) <= target[k])

#ifdef LATE
#define SENT (phase[k] != idle)
#define LATER true
#else
#define LATER false
#define SENT (phase[k] == open || phase[k] == won)
#endif
#ifdef NOOWNER
#define OWNED true
#else
#define OWNED (key[i] == MINE)
#endif
#ifdef NOCOUNTER
#define BEHIND true
#else
#define BEHIND (c[i] <= target[k])
#endif
#ifdef RETAKEBLIND
#define UNPASSED true
#else
#define UNPASSED (c[i] <= token[k])
#endif
#ifdef MAXREPLY
#define AGREED (SUM(GRANTED) >= Q)
#else
#define AGREED (SUM(AGREES) >= Q)
#endif

/* The way between an attempt and a node, and what the node does. What has no effect might as well have been lost. */
proctype link(byte k; byte i)
{
	byte asks;

	do
	:: atomic { SENT && !out[i] && key[i] == 0 && asks <= REPEAT -> /* ask */
		asks++;
		c[i]++;
#ifdef HINTS
		if
		:: skip
		:: c[i]++
		fi;
#endif
		key[i] = MINE;
		if
		:: phase[k] == open -> S(i) = c[i] /* it may heed this answer at any later time */
		:: phase[k] != open || S(i) != 0 -> skip /* nobody does, or an earlier one comes first */
		fi
	   }
	:: atomic { SENT && S(i) != 0 && S(i) < target[k] && !out[i] && OWNED && BEHIND -> /* raise */
		c[i] = target[k];
		if
		:: phase[k] == open -> S(i) = target[k]
		:: else
		fi
	   }
	:: atomic { phase[k] == over && key[i] == MINE -> key[i] = 0; c[i]++ } /* free */
#ifdef EXTENDS
	:: atomic { token[k] != 0 && SENT && !out[i] && key[i] == 0 && UNPASSED -> c[i] = token[k]; key[i] = MINE } /* what matters of it */
#endif
	od
}

proctype attempt(byte k)
{
	byte j;

	atomic { begun == k -> begun++; phase[k] = open; before[k] = greatest };
	do
	:: atomic { target[k] == 0 && SUM(GRANTED) >= Q -> /* some majority has answered; this is the greatest of its counters */
		if
		:: S(0) != 0 -> target[k] = S(0)
		:: S(1) != 0 -> target[k] = S(1)
		:: S(2) != 0 -> target[k] = S(2)
#if N == 5
		:: S(3) != 0 -> target[k] = S(3)
		:: S(4) != 0 -> target[k] = S(4)
#endif
		fi;
		if
		:: SUM(REACHED) < Q -> target[k] = 0 /* of no majority */
		:: else
		fi
	   }
	:: atomic { target[k] != 0 && phase[k] == open && AGREED ->
		phase[k] = won;
		token[k] = target[k];
		assert(token[k] > before[k]); /* in order */
		do
		:: j == K -> break
		:: else ->
			assert(j == k || token[j] != token[k]); /* unique */
#ifdef CLOCKS
			assert(j == k || phase[j] != won); /* alone */
#endif
			j++
		od;
		j = 0;
		before[k] = 0;
		if
		:: token[k] > greatest -> greatest = token[k]
		:: else
		fi
	   }
	:: atomic { phase[k] == open || phase[k] == won -> /* it gave up, or was released, or its time is up */
		phase[k] = over;
		before[k] = 0;
		do /* all that is still of interest is where a raise is under way */
		:: j == N -> break
		:: else ->
			if
			:: S(j) < target[k] && LATER
			:: else -> S(j) = 0
			fi;
			j++
		od;
		j = 0;
		break
	   }
	od
}

/* Keys are gone when nobody relies on them; or at any time. */
#ifdef CLOCKS
#define LAPSES (phase[key[i] - 1] == over)
#define RELIES(j) (phase[j] == open || phase[j] == won)
#else
#define LAPSES true
#define RELIES(j) (phase[j] == open)
#endif

#define DONE(j) (!relied[j] || !RELIES(j))
#if K == 2
#define WAITED (DONE(0) && DONE(1))
#else
#define WAITED (DONE(0) && DONE(1) && DONE(2))
#endif
#ifdef NOWAITING
#define MAYREAD true
#define MAYVOTE true
#else
#define MAYVOTE WAITED
#ifdef READFIRST
#define MAYREAD true
#else
#define MAYREAD WAITED
#endif
#endif
#ifdef NOREADING
#define HASREAD true
#else
#define HASREAD (known != 0)
#endif

/* What befalls a node, and its admission. */
proctype node(byte i)
{
	bool relied[K]; /* attempts that may rely on what was forgotten */
	byte known;     /* what was read of the others; 0: nothing yet */
	byte j, spared;

	do
	:: atomic { key[i] != 0 && LAPSES -> key[i] = 0 }
#if RESTARTS > 0
	:: atomic { restarts < RESTARTS && outs - out[i] < N - Q ->
		restarts++;
#ifndef VOTEATONCE
		outs = outs + 1 - out[i];
		out[i] = true;
#endif
		if /* it remembers nothing, or an older state, or all */
		:: c[i] = 1
		:: c[i] > 1 -> c[i]--
		:: skip
		fi;
		if
		:: key[i] = 0
		:: key[i] != 0 -> skip
		fi;
		known = 0;
		do
		:: j == K -> break
		:: else -> relied[j] = RELIES(j); j++
		od;
		j = 0
	   }
	:: atomic { out[i] && MAYREAD && !HASREAD && N - outs >= Q -> /* read those who are admitted, but one if that leaves enough */
		if
		:: N - outs > Q ->
			if
			:: spared = 0
			:: spared = 1
			:: spared = 2
#if N == 5
			:: spared = 3
			:: spared = 4
#endif
			fi
		:: else -> spared = N
		fi;
		do
		:: j == N -> break
		:: else ->
			if
			:: j != i && j != spared && !out[j] && c[j] > known -> known = c[j]
			:: else
			fi;
			j++
		od;
		j = 0;
		spared = 0
	   }
	:: atomic { out[i] && HASREAD && MAYVOTE ->
		if
		:: known > c[i] -> c[i] = known
		:: else
		fi;
		known = 0;
		out[i] = false;
		outs--;
		do
		:: j == K -> break
		:: else -> relied[j] = false; j++
		od;
		j = 0
	   }
#endif
	od
}

init {
	byte i, k;

	atomic {
		do /* any counters; nodes are alike, so those in order are enough */
		:: i == N -> break
		:: else ->
			if
			:: i == 0 -> c[i] = 1
			:: i > 0 -> c[i] = c[i - 1]
			:: i > 0 && c[i - 1] == 1 -> c[i] = 2
			fi;
			i++
		od;
		i = 0;
		do
		:: i == N -> break
		:: else -> run node(i); i++
		od;
		do
		:: k == K -> break
		:: else ->
			run attempt(k);
			i = 0;
			do
			:: i == N -> break
			:: else -> run link(k, i); i++
			od;
			k++
		od
	}
}
