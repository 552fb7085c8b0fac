#if defined(PIPELINK_WINDOW) || defined(PIPELINK_STREAM)

// The registers of so many sums, as an instruction counts them and as it is told of them.
#define PL_NUMBERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PL_NUMBERS_32 PL_NUMBERS_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PL_NUMBERS_48 PL_NUMBERS_32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define PL_NUMBERS_64 PL_NUMBERS_48 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PL_NUMBERS_96 PL_NUMBERS_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PL_REGISTERS_8(kind, d) kind((d)[0]), kind((d)[1]), kind((d)[2]), kind((d)[3]), kind((d)[4]), kind((d)[5]), kind((d)[6]), kind((d)[7])
#define PL_REGISTERS_16(kind, d) PL_REGISTERS_8(kind, d), PL_REGISTERS_8(kind, d + 8)
#define PL_REGISTERS_32(kind, d) PL_REGISTERS_16(kind, d), PL_REGISTERS_16(kind, d + 16)
#define PL_REGISTERS_48(kind, d) PL_REGISTERS_32(kind, d), PL_REGISTERS_16(kind, d + 32)
#define PL_REGISTERS_64(kind, d) PL_REGISTERS_32(kind, d), PL_REGISTERS_32(kind, d + 32)
#define PL_REGISTERS_96(kind, d) PL_REGISTERS_64(kind, d), PL_REGISTERS_32(kind, d + 64)

#endif
