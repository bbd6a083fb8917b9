interface Shape { name: string; area(): number }
class Circle implements Shape {
  name = "circle";
  constructor(private r: number) {}
  area(): number { return Math.PI * this.r ** 2; }
}
const shapes: Shape[] = [new Circle(1), { name: "square", area: (): number => 4 }];
for (const s of shapes) console.log(`  typescript ${s.name}: ${s.area().toFixed(2)}`);
