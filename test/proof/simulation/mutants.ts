/** A deliberate bug: in one of the product's files, one piece of text is replaced by another. */
export interface Mutant {
  readonly name: string;
  /** Under src. */
  readonly file: string;
  readonly replace: string;
  readonly by: string;
}

export const MUTANTS: readonly Mutant[] = [];
