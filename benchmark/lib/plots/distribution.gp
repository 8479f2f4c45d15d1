# Latency over the part of operations that were as fast: 50, 90, 99, 99.9 per cent. Set by the caller: out data names colours title ylabel
set terminal svg size 800,480 font "sans,13" background "white"
set output out
set title title
set xlabel "per cent of operations"
set ylabel ylabel
set logscale x
set logscale y
set xtics ("50" 2, "90" 10, "99" 100, "99.9" 1000) nomirror
set ytics nomirror
set grid
set key outside right top
plot for [i=1:words(names)] data index i-1 using 1:2 with linespoints \
     lw 2 pt 7 ps 0.6 lc rgb word(colours, i) title word(names, i)
